"""A scene as one SVG: slices side by side, stages one under the other, what travels on the lines between.

Tensor parallelism always reads across and pipeline parallelism down, so a layout of both is a grid. The
picture is 352 units wide, a phone's column: text of 12 units stays legible there, and grows on a wider
page.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from html import escape

from calculators.predict.shapes import Phase
from calculators.splitmap import words
from calculators.splitmap.markup import group, tag, text, text_width
from calculators.splitmap.scene import Device, Scene

WIDTH = 352.0
MARGIN = 1.0
PAD = 8.0
GAP = 8.0
RETURN_LANE = 16.0  # beside the hosts, for the token's way back
HOST_TITLE = 22.0
STAGE_TITLE = 20.0
CARD_TITLE = 20.0
CARD_CAPTION = 18.0
RAIL = 28.0  # from the cards down to the line that joins them, with its label
RAIL_BETWEEN_ROWS = 15.0  # and where the label is further down
PILL_LINE = 16.0
MOST_COLUMNS = 4
MOST_STRIPES = 12
MOST_LABELLED_STAGES = 4  # of a longer pipeline only the first boundary of each kind has its label


@dataclass(frozen=True, kw_only=True)
class Lit:
    """What one step of the strip lights up: the stages at work and the exchanges in flight."""

    stages: Collection[int] = ()
    all_reduces: Collection[int] = ()
    boundaries: Collection[int] = ()
    token_return: bool = False


@dataclass(frozen=True, kw_only=True)
class _Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def right(self) -> float:
        return self.x + self.width


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """One stage laid out: its cards in rows, the lines under them, and where it ends."""

    top: float
    rows: tuple[tuple[tuple[Device, _Box], ...], ...]
    hosts: tuple[tuple[int, _Box], ...]  # only where a stage spans several hosts
    rails: tuple[float, ...]
    bottom: float

    @property
    def cards(self) -> list[tuple[Device, _Box]]:
        return [card for row in self.rows for card in row]


def draw(scene: Scene, lit: Lit | None = None) -> str:
    """The picture of `scene`; with `lit`, one step of a token's way through it."""
    return _Drawing(scene, lit).svg()


class _Drawing:
    def __init__(self, scene: Scene, lit: Lit | None) -> None:
        self.scene, self.lit = scene, lit
        self.lane = RETURN_LANE if scene.token_return.calls else 0.0
        self.inner = _Box(x=MARGIN, y=MARGIN, width=WIDTH - 2 * MARGIN - self.lane, height=0)
        self.stages, self.hosts, self.bottom = self._lay_out()

    def svg(self) -> str:
        parts = [self._host(number, box) for number, box in self.hosts]
        parts += [part for number in range(self.scene.pp) for part in self._stage(number)]
        parts += [self._send(boundary) for boundary in range(self.scene.pp - 1)]
        if self.lane:
            parts.append(self._token_return())
        footer, height = self._footer()
        stepping = " is-step" if self.lit else ""
        return tag(
            "svg",
            tag("title", escape(words.title(self.scene))),
            tag("desc", escape(" ".join(words.sentences(self.scene)))),
            *parts,
            *footer,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
            role="img",
            class_=f"split-map{stepping}",
        )

    # Where everything goes, from the top down.

    def _lay_out(self) -> tuple[list[_Stage], list[tuple[int, _Box]], float]:
        scene, y = self.scene, MARGIN
        stages: list[_Stage] = []
        hosts: list[tuple[int, _Box]] = []
        if scene.tensor_groups_cross_hosts:
            for number in range(scene.pp):
                y += self._gap(number)
                stages.append(self._lay_out_stage(number, y))
                hosts += stages[-1].hosts
                y = stages[-1].bottom
            return stages, hosts, y
        stages_per_host = max(1, min(scene.pp, scene.ranks_per_host // scene.tp))
        for first in range(0, scene.pp, stages_per_host):
            y += self._gap(first)
            top, y = y, y + HOST_TITLE
            for number in range(first, min(first + stages_per_host, scene.pp)):
                y += self._gap(number) * (number > first)
                stages.append(self._lay_out_stage(number, y))
                y = stages[-1].bottom
            y += PAD
            box = _Box(x=self.inner.x, y=top, width=self.inner.width, height=y - top)
            hosts.append((scene.stage(first)[0].host, box))
        return stages, hosts, y

    def _lay_out_stage(self, number: int, top: float) -> _Stage:
        scene, y = self.scene, top + (STAGE_TITLE if self.scene.pp > 1 and self.scene.tp > 1 else 0)
        devices = scene.stage(number)
        if scene.tp == 1:
            box = self._inside_host(y)
            card = _Box(x=box.x, y=y, width=box.width, height=self._card_height())
            return _Stage(top=top, rows=(((devices[0], card),),), hosts=(), rails=(), bottom=card.bottom)
        rows: list[tuple[tuple[Device, _Box], ...]] = []
        hosts: list[tuple[int, _Box]] = []
        rails: list[float] = []
        spans = scene.tensor_groups_cross_hosts
        for row in self._rows(devices):
            opens = spans and not (hosts and hosts[-1][0] == row[0].host)
            card_y = y + HOST_TITLE * opens
            placed = self._place_row(row, card_y)
            rows.append(tuple((device, box) for _, device, box in placed))
            hosts += [(device.host, host) for host, device, _ in placed if opens and host is not None]
            y = card_y + self._card_height() + PAD * spans
            if spans and not opens:
                number_of_host, opened = hosts[-1]
                hosts[-1] = (number_of_host, replace(opened, height=y - opened.y))
            last = row[-1] is devices[-1]
            rails.append(y + (RAIL if last else RAIL_BETWEEN_ROWS))
            y = rails[-1] + (0 if last else PAD)
        label = len(self._pill_lines(words.all_reduce_label(scene))) * PILL_LINE
        return _Stage(
            top=top, rows=tuple(rows), hosts=tuple(hosts), rails=tuple(rails), bottom=y + label / 2 + 4
        )

    def _rows(self, devices: tuple[Device, ...]) -> list[list[Device]]:
        columns, per_host = self._columns(), self.scene.ranks_per_host
        wide = self.scene.tensor_groups_cross_hosts and per_host > columns  # then no row has two hosts
        blocks = per_host if wide else len(devices)
        return [
            list(devices[row : min(row + columns, block + blocks)])
            for block in range(0, len(devices), blocks)
            for row in range(block, block + blocks, columns)
        ]

    def _columns(self) -> int:
        tp, per_host = self.scene.tp, self.scene.ranks_per_host
        if self.scene.tensor_groups_cross_hosts and per_host < tp:
            in_a_row = MOST_COLUMNS // per_host * per_host  # whole hosts
            return min(tp, in_a_row) if in_a_row else _even(per_host)
        return _even(tp)

    def _place_row(self, row: list[Device], y: float) -> list[tuple[_Box | None, Device, _Box]]:
        """Cards of one row, each first card of a host with that host's box where the stage spans hosts."""
        columns, spans = self._columns(), self.scene.tensor_groups_cross_hosts
        height = self._card_height()
        if not spans:
            box = self._inside_host(y)
            width = (box.width - GAP * (columns - 1)) / columns
            return [
                (None, device, _Box(x=box.x + i * (width + GAP), y=y, width=width, height=height))
                for i, device in enumerate(row)
            ]
        in_host = min(self.scene.ranks_per_host, columns)
        blocks = columns // in_host
        block_width = (self.inner.width - GAP * (blocks - 1)) / blocks
        width = (block_width - 2 * PAD - GAP * (in_host - 1)) / in_host
        placed: list[tuple[_Box | None, Device, _Box]] = []
        for i, device in enumerate(row):
            block, column = divmod(i, in_host)
            x = self.inner.x + block * (block_width + GAP)
            host = _Box(x=x, y=y - HOST_TITLE, width=block_width, height=HOST_TITLE + height + PAD)
            card = _Box(x=x + PAD + column * (width + GAP), y=y, width=width, height=height)
            placed.append((host if column == 0 else None, device, card))
        return placed

    def _inside_host(self, y: float) -> _Box:
        return _Box(x=self.inner.x + PAD, y=y, width=self.inner.width - 2 * PAD, height=0)

    def _card_height(self) -> float:
        if self.scene.tp == 1:
            return self._model_height() + 2 * PAD
        return CARD_TITLE + self._model_height() + CARD_CAPTION + 4

    def _model_height(self) -> float:
        stripes = self._stripes()
        return max(30.0 if self.scene.pp > MOST_LABELLED_STAGES else 48.0, 2.4 * stripes)

    def _stripes(self) -> int:
        per_stage = self.scene.layers_per_stage
        return self.scene.pp * min(per_stage, max(1, MOST_STRIPES // self.scene.pp))

    def _gap(self, stage: int) -> float:
        """Room above a stage for what arrives there."""
        boundary = stage - 1
        if boundary < 0:
            return 0.0
        if not self._is_labelled(boundary):
            return 22.0
        return 26.0 + len(self._pill_lines(words.send_label(self.scene, boundary))) * PILL_LINE

    def _is_labelled(self, boundary: int) -> bool:
        kinds = [self.scene.boundary_crosses_hosts(other) for other in range(boundary + 1)]
        return self.scene.pp <= MOST_LABELLED_STAGES or kinds.index(kinds[boundary]) == boundary

    # The marks.

    def _host(self, number: int, box: _Box) -> str:
        name = f"Host {number}" if self.scene.hosts > 1 else "One host"
        return group(
            tag("rect", x=box.x, y=box.y, width=box.width, height=box.height, rx=8, class_="sm-host"),
            text(name, x=box.x + PAD, y=box.y + 15, class_="sm-host-name"),
            class_="sm-host-box",
        )

    def _stage(self, number: int) -> list[str]:
        scene, stage = self.scene, self.stages[number]
        parts: list[str] = []
        if scene.pp > 1 and scene.tp > 1:
            first = stage.cards[0][0]
            name = f"Stage {number}: {words.layer_range(first.first_layer, first.last_layer)}"
            x = stage.cards[0][1].x if not stage.hosts else self.inner.x
            parts.append(group(text(name, x=x, y=stage.top + 13, class_="sm-stage-name"), class_="family-pp"))
        if stage.rails:
            parts.append(self._all_reduce(number, stage))
        state = self._state(self.lit is None or number in self.lit.stages)
        parts += [group(*self._card(device, box), class_=f"sm-card {state}") for device, box in stage.cards]
        return parts

    def _card(self, device: Device, box: _Box) -> list[str]:
        frame = tag("rect", x=box.x, y=box.y, width=box.width, height=box.height, rx=5, class_="sm-frame")
        name = f"Device {device.rank}"
        if self.scene.tp > 1:
            model = _Box(x=box.x + 6, y=box.y + CARD_TITLE, width=box.width - 12, height=self._model_height())
            caption = self._slice_caption(device, box.width)
            return [
                frame,
                text(name, x=box.middle, y=box.y + 14, class_="sm-name sm-middle"),
                *self._model(device, model),
                text(caption, x=box.middle, y=box.bottom - 7, class_="sm-caption sm-middle"),
            ]
        model = _Box(x=box.x + PAD, y=box.y + PAD, width=box.width * 0.36, height=self._model_height())
        x, y = model.right + 12, box.y + box.height / 2
        stage = f" · stage {device.stage}" if self.scene.pp > 1 else ""
        layers = words.layer_range(device.first_layer, device.last_layer)
        return [
            frame,
            *self._model(device, model),
            text(name + stage, x=x, y=y - 4, class_="sm-name"),
            text(f"{layers}, whole", x=x, y=y + 13, class_="sm-caption"),
        ]

    def _slice_caption(self, device: Device, width: float) -> str:
        long = f"slice {device.slice} of {self.scene.tp}"
        return long if text_width(long, 11) <= width - 4 else f"slice {device.slice}/{self.scene.tp}"

    def _model(self, device: Device, box: _Box) -> list[str]:
        """The whole model as stripes of layers; what this device holds of it is filled."""
        scene, stripes = self.scene, self._stripes()
        per_stage, step = stripes // scene.pp, box.height / stripes
        first = device.stage * per_stage
        held_width = box.width / scene.tp
        held_x = box.x + (device.slice - 1) * held_width
        both = scene.tp > 1 and scene.pp > 1
        family = "family-tp" if scene.tp > 1 else "family-pp" if scene.pp > 1 else "sm-unsplit"
        elsewhere: list[str] = []
        band: list[str] = []
        held: list[str] = []
        for stripe in range(stripes):
            here = first <= stripe < first + per_stage
            y, height = box.y + stripe * step, step - (1.5 if step > 4 else 0.9)
            whole = tag("rect", x=box.x, y=y, width=box.width, height=height, rx=1)
            if here:
                inset = 0.75 * (scene.tp > 1)
                held.append(
                    tag("rect", x=held_x + inset, y=y, width=held_width - 2 * inset, height=height, rx=1)
                )
                (band if both else elsewhere).append(whole)
            else:
                elsewhere.append(whole)
        drawn = [group(*elsewhere, class_="sm-elsewhere")] if elsewhere else []
        if band:
            drawn.append(group(*band, class_="sm-band family-pp"))
        return [*drawn, group(*held, class_=f"sm-held {family}")]

    def _all_reduce(self, number: int, stage: _Stage) -> str:
        rows = [[box for _, box in row] for row in stage.rows]
        drawn = []
        for rail, boxes in zip(stage.rails, rows, strict=True):
            left, right = boxes[0].middle, boxes[-1].middle
            if rail == stage.rails[-1]:  # it reaches its label, which stands in the middle
                right = max(right, self.inner.middle)
            if len(stage.rails) > 1:
                left = self.inner.x + PAD / 2
            drawn.append(tag("path", d=f"M{left:.1f} {rail:.1f}H{right:.1f}", class_="sm-line"))
            for box in boxes:
                drawn.append(
                    tag("path", d=f"M{box.middle:.1f} {rail:.1f}V{box.bottom + 5:.1f}", class_="sm-line")
                )
                drawn.append(_head(box.middle, box.bottom + 2, up=True))
        if len(stage.rails) > 1:
            x = self.inner.x + PAD / 2
            drawn.append(
                tag("path", d=f"M{x:.1f} {stage.rails[0]:.1f}V{stage.rails[-1]:.1f}", class_="sm-line")
            )
        drawn.append(self._pill(words.all_reduce_label(self.scene), y=stage.rails[-1]))
        state = self._state(self.lit is None or number in self.lit.all_reduces)
        return group(*drawn, class_=f"sm-exchange family-tp {state}")

    def _send(self, boundary: int) -> str:
        scene, above, below = self.scene, self.stages[boundary], self.stages[boundary + 1]
        crosses = scene.boundary_crosses_hosts(boundary)
        top = above.bottom + (PAD if crosses and not above.hosts else 0)
        end = below.top - (HOST_TITLE if crosses and not below.hosts else 0)
        if crosses and not above.hosts:
            top, end = above.bottom + PAD, below.top - HOST_TITLE
        drawn = []
        two_ways = scene.phase == Phase.TRAINING
        for _, box in below.rows[0]:
            start = top + (8 if two_ways else 3)
            drawn.append(tag("path", d=f"M{box.middle:.1f} {start:.1f}V{end - 7:.1f}", class_="sm-line"))
            drawn.append(_head(box.middle, end - 2, up=False))
            if two_ways:
                drawn.append(_head(box.middle, top + 2, up=True))
        if self._is_labelled(boundary):
            drawn.append(self._pill(words.send_label(scene, boundary), y=(top + end) / 2 - 1))
        state = self._state(self.lit is None or boundary in self.lit.boundaries)
        return group(*drawn, class_=f"sm-exchange family-pp {state}")

    def _token_return(self) -> str:
        last, first = self.stages[-1].cards[-1][1], self.stages[0].cards[0][1]
        right = self.stages[0].rows[0][-1][1].right
        x = WIDTH - MARGIN - RETURN_LANE / 2 + 2
        y_from, y_to = last.y + last.height / 2, first.y + first.height / 2
        line = f"M{last.right:.1f} {y_from:.1f}H{x:.1f}V{y_to:.1f}H{right + 7:.1f}"
        state = self._state(self.lit is None or self.lit.token_return)
        return group(
            tag("path", d=line, class_="sm-line"),
            _head_left(right + 2, y_to),
            class_=f"sm-return {state}",
        )

    def _pill(self, pieces: tuple[str, ...], *, y: float) -> str:
        lines = self._pill_lines(pieces)
        width = max(text_width(line, 12) for line in lines) + 14
        height = len(lines) * PILL_LINE + 4
        x = self.inner.middle
        return group(
            tag(
                "rect", x=x - width / 2, y=y - height / 2, width=width, height=height, rx=10, class_="sm-pill"
            ),
            *(
                text(line, x=x, y=y - height / 2 + 14 + i * PILL_LINE, class_="sm-pill-text sm-middle")
                for i, line in enumerate(lines)
            ),
            class_="sm-label",
        )

    def _pill_lines(self, pieces: tuple[str, ...]) -> list[str]:
        line = " · ".join(pieces)
        if text_width(line, 12) <= self.inner.width - 2 * PAD - 14:
            return [line]
        return [pieces[0], " · ".join(pieces[1:])]

    def _footer(self) -> tuple[list[str], float]:
        if self.lit:
            return [], self.bottom + 4
        scene, x, y = self.scene, self.inner.x + 2, self.bottom + 18
        lines = [text(words.bytes_sent_label(scene), x=x, y=y, class_="sm-total")]
        if self.lane:
            y += 17
            lines.append(text(words.token_return_label(scene), x=x, y=y, class_="sm-key"))
        stripes = self._stripes()
        if stripes == scene.layers:
            stripe = "each stripe is one layer"
        else:
            stand = "stands" if stripes == 1 else "stand"
            stripe = f"{words.count(stripes, 'stripe')} {stand} for {scene.layers} layers"
        keys = [f"filled: held here; {stripe}"]
        if scene.tp > 1 and scene.pp > 1:
            keys = ["filled: held here; outlined: this stage’s layers", stripe]
        for key in keys:
            y += 17
            lines.append(text(key, x=x, y=y, class_="sm-key"))
        return lines, y + 6

    def _state(self, on: bool) -> str:
        if self.lit is None:
            return ""
        return "is-lit" if on else "is-quiet"


def _even(devices: int) -> int:
    """Columns for so many cards: all of them, else the number up to four that leaves the fullest rows."""
    if devices <= MOST_COLUMNS:
        return devices
    return max((4, 3), key=lambda columns: (devices % columns == 0, columns))


def _head(x: float, y: float, *, up: bool) -> str:
    away = 6 if up else -6
    return tag("path", d=f"M{x:.1f} {y:.1f}l-4 {away}h8z", class_="sm-head")


def _head_left(x: float, y: float) -> str:
    return tag("path", d=f"M{x:.1f} {y:.1f}l6 -4v8z", class_="sm-head")
