"""A task in fifty lines: what the log must agree with, written without looking at it."""

ENDS = {"completed", "failed", "canceled", "rejected", "replied"}


class Told(Exception):  # noqa: N818 - a loser is told the true state
    """The command lost; the text says in which state it found the task."""


class Model:
    """One task: its state, the node that owns it, and the words of its log."""

    def __init__(self, node: str) -> None:
        self.state, self.node, self.stopping, self.log = "submitted", node, False, ["submitted"]

    @property
    def over(self) -> bool:
        return self.state in ENDS

    def do(self, what: str, *words: str) -> None:
        """One command; raises Told if it loses."""
        if self.over and what in ("say", "cancel", "emit"):
            raise Told(self.state)
        getattr(self, f"_{what}")(*words)

    def _say(self, node: str) -> None:
        if self.state == "input-required":
            self._add(*([f"claimed {node}"] if node not in ("", self.node) else []), "said", "working")
        else:
            self._add("said")

    def _cancel(self) -> None:
        self._add(*([] if self.stopping else ["cancelrequested"]))
        self._add(*(["canceled"] if self.state == "input-required" else []))

    def _force(self) -> None:
        if not self.over:
            self._add("canceled")

    def _claim(self, node: str, dead: str) -> None:
        if self.state in ("submitted", "working") and dead == self.node:
            self._add(f"claimed {node}")

    def _release(self, node: str) -> None:
        if not self.over and node == self.node:
            self._add("claimed ")

    def _emit(self, node: str, *words: str) -> None:
        if node != self.node:
            raise Told("another node")
        if self.state == "submitted" and words[0] not in ("working", "replied"):
            self._add("working")
        for word in words:
            if not self.over:
                self._add(word)

    def _add(self, *words: str) -> None:
        for word in words:
            self.log.append(word)
            self.stopping |= word == "cancelrequested"
            self.node = word.removeprefix("claimed ") if word.startswith("claimed") else self.node
            if word in ENDS | {"working", "input-required"}:
                self.state = word
