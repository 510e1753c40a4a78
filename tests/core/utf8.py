"""Texts cut at a character, to what has room as UTF-8."""


def cut(text: str, room: int) -> str:
    """The longest start of `text` that has room as UTF-8."""
    for i, character in enumerate(text):
        room -= len(character.encode("utf-8", "surrogatepass"))
        if room < 0:
            return text[:i]
    return text
