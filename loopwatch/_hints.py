"""What to do about a stall: one sentence, from a table of rules with their reasons.

The first rule that applies speaks. Whether a C call drops the GIL cannot be seen from the loop's own thread
alone, so the table names the well-known ones, and a rule for the rest says what decides. Where another thread
held the GIL, the samples have shown that its call does not drop it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopwatch._clues import Clues, Platform, Rule, library_functions
from loopwatch._stall import Stall, Verdict


def hint(stall: Stall, expression: str = "", platform: Platform | None = None) -> str:
    """One sentence: what to do about this kind of stall here."""
    clues = Clues(stall, library_functions(stall), expression, platform or Platform.here())
    rule = next(rule for rule in RULES if rule.applies(clues))
    return rule.advice.format_map(_fields(clues))


def _fields(clues: Clues) -> dict[str, object]:
    return {
        "pool": "a process or interpreter pool" if clues.platform.interpreters else "a process pool",
        "client": clues.first_of(_CLIENTS),
        "importing": clues.importing or "the module",
        "callbacks": clues.stall.evidence.callbacks or "many",
        "sleep": "await asyncio.sleep(...)" if clues.stall.task else "loop.call_later(...)",
    }


_CLIENTS: Final = {  # in this order: the first seen is the one the program chose, the others are what it uses
    "botocore": "aiobotocore",
    "elasticsearch": "elasticsearch.AsyncElasticsearch",
    "redis": "redis.asyncio",
    "pymongo": "pymongo.AsyncMongoClient",
    "sqlalchemy": "sqlalchemy.ext.asyncio",
    "psycopg2": "psycopg.AsyncConnection or asyncpg",
    "psycopg": "psycopg.AsyncConnection",
    "pymysql": "aiomysql",
    "mysql.connector": "mysql.connector.aio",
    "sqlite3": "aiosqlite",
    "paramiko": "asyncssh",
    "pika": "aio-pika",
    "kafka": "aiokafka",
    "grpc": "grpc.aio",
    "requests": "httpx.AsyncClient or aiohttp",
    "httpx": "httpx.AsyncClient",
    "urllib3": "httpx.AsyncClient or aiohttp",
    "urllib.request": "httpx.AsyncClient or aiohttp",
    "http.client": "httpx.AsyncClient or aiohttp",
    "smtplib": "aiosmtplib",
    "ftplib": "aioftp",
    "imaplib": "aioimaplib",
}
"""Blocking client libraries, and what does the same without blocking."""


# --- the table ---

_MACHINE: Final = frozenset({Verdict.NOT_SCHEDULED})
_GIL: Final = frozenset({Verdict.GIL})
_CPU: Final = frozenset({Verdict.PYTHON, Verdict.NATIVE})
_WAIT: Final = frozenset({Verdict.LOCK, Verdict.BLOCKING_CALL})
_LOCK: Final = frozenset({Verdict.LOCK})
_CALL: Final = frozenset({Verdict.BLOCKING_CALL})
_LOOPS_OWN: Final = _CPU | _WAIT

_KEEPS_THE_GIL: Final = (
    r"\b(json|orjson|ujson|pickle|marshal|re|regex|copy|csv|ast)\.\w+\(|\bdeepcopy\("
    r"|\.(match|search|fullmatch|findall|finditer|sub|subn)\("
)
_KEEPS_THE_GIL_MODULES: Final = ("json", "re", "pickle", "copy", "csv", "ast")
_DROPS_THE_GIL: Final = (
    r"\b(hashlib|zlib|gzip|bz2|lzma|hmac|bcrypt|np|numpy)\.|\b(pbkdf2_hmac|scrypt|sha\d+|md5|blake2[bs])\("
    r"|\.(compress|decompress)\("
)
_DROPS_THE_GIL_MODULES: Final = ("gzip", "bz2", "lzma", "zipfile", "tarfile", "bcrypt", "hmac", "numpy")


def _mostly_collected(clues: Clues) -> bool:
    return (clues.stall.evidence.gc_time or 0.0) >= clues.part(Verdict.GIL) / 2


def _throttled(clues: Clues) -> bool:
    return (clues.stall.evidence.throttled_time or 0.0) >= clues.part(Verdict.NOT_SCHEDULED) / 2


def _paged(clues: Clues) -> bool:
    """The thread did not wait for a CPU, and there were faults that a disk had to answer."""
    queued, faults = clues.stall.evidence.run_queue_wait, clues.stall.evidence.major_faults
    return queued is not None and queued < clues.part(Verdict.NOT_SCHEDULED) / 2 and bool(faults)


def _no_gil(clues: Clues) -> bool:
    return not clues.platform.gil


def _target(prefixes: tuple[str, ...]) -> Callable[[Clues], bool]:
    return lambda clues: (clues.stall.evidence.target or "").startswith(prefixes)


RULES: Final = (
    # The machine.
    Rule(
        "suspended",
        frozenset({Verdict.SUSPENDED}),
        "Nothing in the code: the process was stopped from outside (SIGSTOP, a frozen container).",
        "No code of the program ran, so none can be changed to help.",
    ),
    Rule(
        "throttled",
        _MACHINE,
        "Nothing in the code: the container's CPU quota was used up; raise it, or run fewer threads.",
        "A cgroup over its quota gets no CPU until the next period begins, whatever it runs.",
        when=_throttled,
    ),
    Rule(
        "paged out",
        _MACHINE,
        "Nothing in the code: the thread waited for memory to come from disk; give it more memory.",
        "A page that must be read first keeps the thread off the CPU without any call in the program.",
        when=_paged,
    ),
    Rule(
        "starved",
        _MACHINE,
        "Nothing in the code: other work had the CPU; look for busy processes and threads, or add CPUs.",
        "A runnable thread waits its turn; what its stack shows is where it happened to be.",
    ),
    # Another thread has the GIL.
    Rule(
        "collection in a thread",
        _GIL,
        "Call loopwatch.freeze_startup() once started: a thread's collection stops the loop as well.",
        "The collector keeps the GIL for a whole pass over the heap, whichever thread starts it.",
        when=_mostly_collected,
    ),
    Rule(
        "C call in a thread",
        _GIL,
        "Give this call to {pool}: it keeps the GIL until it returns, so a thread stops the loop as long.",
        "json, re, pickle and the like never release the GIL within one call.",
        modules=_KEEPS_THE_GIL_MODULES,
        expression=_KEEPS_THE_GIL,
    ),
    Rule(
        "work in a thread",
        _GIL,
        "Move this thread's work to {pool}: only one thread at a time can have the GIL.",
        "Python code in a thread costs the loop the switch interval at each turn; C code may cost more.",
    ),
    # The collector.
    Rule(
        "collection asked for",
        frozenset({Verdict.GC}),
        "Do not call gc.collect() while serving: call loopwatch.freeze_startup() once, before that.",
        "A full collection visits each object of the heap.",
        expression=r"\bgc\.collect\(",
    ),
    Rule(
        "collection",
        frozenset({Verdict.GC}),
        "Call loopwatch.freeze_startup() once the program has started: the collector skips what was there.",
        "A full collection visits each object that is not frozen; the start-up heap is most of them.",
    ),
    # A turn of many.
    Rule(
        "many callbacks",
        frozenset({Verdict.MANY_CALLBACKS}),
        "Wake fewer at once: run the {callbacks} callbacks in batches, with await asyncio.sleep(0) between.",
        "A turn runs everything that was ready at its begin, however short each is.",
    ),
    # Once, before traffic.
    Rule(
        "import",
        _LOOPS_OWN,
        "Import {importing} when the program starts, not while it serves.",
        "The first import reads, compiles and runs a module; later ones find it.",
        when=lambda clues: clues.importing is not None,
    ),
    Rule(
        "TLS context",
        _LOOPS_OWN,
        "Make the TLS context, or the client that makes one, once at start and share it.",
        "Each context parses the whole bundle of certificates again, in 10 to 40 ms, and then never changes.",
        modules=("ssl:create_default_context", "ssl:SSLContext", "ssl:_create_unverified_context"),
        expression=r"\bcreate_default_context\(|\bSSLContext\(|\bload_(verify_locations|default_certs)\(",
    ),
    Rule(
        "model",
        _LOOPS_OWN,
        "Load models, tokenizers and indexes once at start, and share them.",
        "They do not change, so a request has no reason to load them.",
        modules=(
            "transformers",
            "tiktoken.load",
            "sentence_transformers",
            "spacy.util",
            "joblib.numpy_pickle",
        ),
        expression=r"\bfrom_pretrained\(|\b(torch|joblib|spacy)\.load\(|\bTokenizer\.from_\w+\(",
    ),
    # Waiting for a lock.
    Rule(
        "queue",
        _LOCK,
        "Use asyncio.Queue, which is awaited; for a queue shared with threads, await asyncio.to_thread(...).",
        "queue.Queue makes its thread wait, and here that is the loop's.",
        modules=("queue", "multiprocessing.queues"),
        expression=r"\b(SimpleQueue|Queue)\b.*\.(get|put)\(",
    ),
    Rule(
        "future",
        _LOCK,
        "Await it: asyncio.wrap_future(future), or loop.run_in_executor(...) instead of submit(...).",
        "concurrent.futures waits with the thread; if the loop itself is to finish the work, for ever.",
        modules=("concurrent.futures",),
    ),
    Rule(
        "thread's end",
        _LOCK,
        "Await asyncio.to_thread(thread.join) in place of joining on the loop.",
        "join() makes its thread wait for the whole life of the other.",
        modules=("threading:Thread.join", "threading:Thread._wait_for_tstate_lock"),
        expression=r"\bthread\w*\.join\(",
    ),
    Rule(
        "event or condition",
        _LOCK,
        "Use asyncio.Event or asyncio.Condition; a thread sets it with loop.call_soon_threadsafe(event.set).",
        "The wait() of threading makes its thread wait.",
        modules=(
            "threading:Event.wait",
            "threading:Condition.wait",
            "threading:Barrier",
            "threading:Semaphore",
        ),
    ),
    Rule(
        "lock",
        _LOCK,
        "Use asyncio.Lock among coroutines, and never hold a threading.Lock across an await.",
        "Who awaits with the lock held lets the loop run another task, which then waits with the loop.",
    ),
    # Waiting in a system call.
    Rule(
        "process",
        _WAIT,
        "Use asyncio.create_subprocess_exec() and await the process.",
        "subprocess and os.system wait with the thread until the child ends.",
        modules=("subprocess",),
        expression=r"\bos\.(system|popen|wait\w*)\(|\bsubprocess\.",
        syscalls=("wait4", "waitid"),
    ),
    Rule(
        "log",
        _WAIT,
        "Log through logging.handlers.QueueHandler and a QueueListener: where the log goes is behind.",
        "A handler writes on the thread that logs; a full pipe or a slow disk makes it wait.",
        modules=("logging",),
    ),
    Rule(
        "name look-up",
        _CALL,
        "Await loop.getaddrinfo(...), or connect with asyncio.open_connection().",
        "The resolver waits for its servers with the thread.",
        modules=("socket:getaddrinfo", "socket:gethostbyname"),
        expression=r"\bgetaddrinfo\(|\bgethostby\w+\(",
    ),
    Rule(
        "blocking client",
        _CALL,
        "Use an async library ({client}); else a thread, in an executor of its own.",
        "Its calls wait with the thread; in a shared pool one slow dependency takes all threads.",
        when=lambda clues: bool(clues.first_of(_CLIENTS)),
    ),
    Rule(
        "sleep",
        _CALL,
        "Use {sleep}: time.sleep stops the whole loop.",
        "time.sleep puts the thread to sleep, and with it every task of the loop.",
        expression=r"(\btime\.|(?<![\w.]))sleep\(",
    ),
    Rule(
        "question to a terminal",
        _CALL,
        "Await asyncio.to_thread(input) in place of asking on the loop.",
        "input() waits for a person.",
        expression=r"(?<![\w.])input\(",
    ),
    Rule(
        "socket",
        _CALL,
        "Use asyncio.open_connection() or an async library; else a thread, in an executor of its own.",
        "A blocking socket waits with the thread for the other side.",
        syscalls=("connect", "accept", "accept4", "recvfrom", "recvmsg", "sendto", "sendmsg"),
        when=lambda clues: not _target(("/",))(clues),
    ),
    Rule(
        "peer",
        _CALL,
        "Use asyncio.open_connection() or an async library; else a thread, in an executor of its own.",
        "What the call waits for is a connection, whatever the call is.",
        when=_target(("tcp", "udp", "unix")),
    ),
    Rule(
        "pipe",
        _CALL,
        "The other end of the pipe is behind: use loop.connect_read_pipe() or a thread to wait for it.",
        "A pipe holds 64 KiB; a full one makes its writer wait, an empty one its reader.",
        when=_target(("pipe", "fifo")),
    ),
    Rule(
        "file",
        _CALL,
        "Await asyncio.to_thread(...) for this file: file calls drop the GIL, so a thread can wait.",
        "A slow disk or network share makes each read, write, open and fsync wait.",
        syscalls=("fsync", "fdatasync", "openat", "pread64", "pwrite64", "flock"),
        expression=r"(?<![\w.])open\(|\.(read|write)_(text|bytes)\(",
        when=lambda clues: not _target(("tcp", "udp", "unix", "pipe"))(clues),
    ),
    Rule(
        "call",
        _CALL,
        "Use an async library; else await asyncio.to_thread(...), which helps if the call drops the GIL.",
        "Waiting in a system call drops the GIL as a rule; a C extension may forget to.",
    ),
    # Work on the CPU.
    Rule(
        "work, without a GIL",
        _CPU,
        "Await asyncio.to_thread(...) for this work: without a GIL, threads run beside the loop.",
        "On a free-threaded build with the GIL off a thread does not share anything with the loop.",
        when=_no_gil,
    ),
    Rule(
        "answer serialised by the framework",
        _CPU,
        "Return a ready Response, or less data: the framework serialises the answer on the loop.",
        "What an endpoint returns is walked object by object after the endpoint has ended.",
        modules=("fastapi.encoders", "fastapi.routing:serialize_response"),
    ),
    Rule(
        "C code that keeps the GIL",
        _CPU,
        "Give this call to {pool}: a thread would keep the GIL as long, and the loop would wait for it.",
        "json, re, pickle and the like never release the GIL within one call.",
        modules=_KEEPS_THE_GIL_MODULES,
        expression=_KEEPS_THE_GIL,
    ),
    Rule(
        "C code that drops the GIL",
        _CPU,
        "Await asyncio.to_thread(...) for this call: on large inputs it drops the GIL.",
        "hashlib over 2047 bytes, compression and much of NumPy release the GIL while they work.",
        modules=_DROPS_THE_GIL_MODULES,
        expression=_DROPS_THE_GIL,
    ),
    Rule(
        "other C code",
        frozenset({Verdict.NATIVE}),
        "Await asyncio.to_thread(...) if this C code drops the GIL; if it keeps it, use {pool}.",
        "Only a call that drops the GIL runs beside the loop; which one does is in its documentation.",
    ),
    Rule(
        "Python code",
        frozenset({Verdict.PYTHON}),
        "Move this computation to {pool}, or split it with await loopwatch.checkpoint() in its loop.",
        "A thread would share the GIL with the loop: smaller stalls, and more of them.",
    ),
    Rule(
        "unseen",
        frozenset({Verdict.UNKNOWN}),
        "Start where the stack points; loopwatch.doctor() says what cannot be seen on this system.",
        "Without clocks there is no cause, only a place.",
    ),
)
