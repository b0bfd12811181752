"""Text that breaks programs: as a name of a file or class, as an argument, as a cell."""

import random

NASTY = (
    *(
        " ",
        "a b",
        " lead",
        "trail ",
        "left ",
        "LEFT",
        ".",
        "..",
        ".hidden",
        "~",
        "~root",
        "-",
        "--",
        "-x",
        "--help",
        "--json",
    ),
    *(
        "$x$",
        "$HOME",
        "$(touch PWNED)",
        "; touch PWNED",
        "`touch PWNED`",
        "| touch PWNED",
        "&& touch PWNED #",
        "'",
        '"',
        "\\",
    ),
    *(
        "=HYPERLINK(1)",
        "+1",
        "-1",
        "@x",
        "a\nb",
        "a\rb",
        "a\tb",
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\x00",
        "\x7f",
        "\x85",
    ),
    *("é", "e\u0301", "\udcff", "\ud800", "😀", "日本語", "\u202eabc", "\ufeff", "\u2028", "ﬁ", "ß", "İ"),
    *(
        "%d",
        "%s",
        "%05d.jpg",
        "{shard}",
        "{}",
        "{0}",
        "[bold]",
        "[/]",
        "[red]x",
        "<script>alert(1)</script>",
        "&amp;",
        "a::5+9",
    ),
    *(
        "a.tar::0+10",
        "pipe:cat",
        "pipe:touch PWNED",
        "concat:a|b",
        "file:good.mp4",
        "http://127.0.0.1:9/x",
        "data:,x",
        "lavfi:x",
    ),
    *(
        "a,b",
        "a;b",
        "a=b",
        "*",
        "?",
        "#",
        "!",
        "None",
        "none",
        "nan",
        "inf",
        "true",
        "1",
        "0",
        "1e999",
        "0x10",
        "1_000",
        "١",
    ),
    *(
        "train",
        "val",
        "test",
        "labels.txt",
        "index.json",
        "CON",
        "nul",
        "a" * 255,
        "é" * 127,
        "a" * 300,
        "x.tar; touch PWNED",
    ),
)


def any_text(rng: random.Random) -> str:
    """A nasty text, or random characters: sometimes of any script, sometimes bytes that are not UTF-8."""
    draw = rng.random()
    if draw < 0.7:
        return rng.choice(NASTY)
    length = rng.choice((1, 2, 5, 20, 80))
    if draw < 0.85:
        return "".join(chr(rng.randrange(1, 0xD800)) for _ in range(length))
    return rng.randbytes(length).decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """The bytes of a text, whatever surrogates are in it."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def passable(text: str) -> str:
    """The text as a process finds it among its arguments."""
    return to_bytes(text.replace("\0", "\\0")).decode("utf-8", "surrogateescape")


def any_name(rng: random.Random, suffix: str = "") -> str:
    """A text that can name a file on Linux, often with the suffix of a video."""
    text = passable(any_text(rng)).replace("/", "_")
    while len(to_bytes(text)) + len(suffix) > 255:
        text = text[:-1]
    return (text or "_") + suffix
