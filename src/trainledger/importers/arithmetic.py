"""`$((...))` in a command's words, worked out without a shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainledger.importers.reckoning import CLOSED, OPENED, reckoned
from trainledger.importers.shell_words import Word


def worked_out(words: Sequence[Word], env: Mapping[str, Word]) -> tuple[Word, ...]:
    """The words with every `$((...))` replaced by its value; what cannot be worked out stays as it is.

    Such a text that was split at its spaces is joined again first.
    """
    return tuple(_worked_out(word, env) for word in _joined(words))


def _joined(words: Sequence[Word]) -> list[Word]:
    out: list[Word] = []
    for word in words:
        before = out[-1].text if out else ""
        if out and before.rfind(OPENED) > before.rfind(CLOSED):
            out[-1] = replace(out[-1], text=f"{before} {word.text}")
        else:
            out.append(word)
    return out


def _worked_out(word: Word, env: Mapping[str, Word]) -> Word:
    opened = word.text.find(OPENED)
    closed = word.text.rfind(CLOSED)
    if opened < 0 or closed < opened:
        return word
    found = value_of(word.text[opened + len(OPENED) : closed], env)
    if found is None:
        return word
    text = word.text[:opened] + str(found) + word.text[closed + len(CLOSED) :]
    return replace(word, text=text, known="$" not in text)


def value_of(text: str, env: Mapping[str, Word]) -> int | None:
    """The value of an expression over variables; None where a name is not known or it is none."""
    return reckoned(text, lambda name: env[name].text if name in env else None)
