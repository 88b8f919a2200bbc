"""Random crush maps in text form, as odd as crushtool accepts: every bucket algorithm, tunables, classes, weight sets."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

MODERN = {"choose_local_tries": 0, "choose_local_fallback_tries": 0, "choose_total_tries": 50,
          "chooseleaf_descend_once": 1, "chooseleaf_vary_r": 1, "chooseleaf_stable": 1, "straw_calc_version": 1}  # fmt: skip
RULES = (
    ["chooseleaf firstn 0 type host"],
    ["choose firstn 0 type osd"],
    ["chooseleaf indep 0 type host"],
    ["choose indep 0 type osd"],
    ["choose firstn 0 type host", "choose firstn 1 type osd"],
    ["choose indep 2 type rack", "chooseleaf indep 2 type host"],
    ["choose firstn 2 type rack", "chooseleaf firstn 2 type host"],
    ["chooseleaf firstn 0 type rack"],
    ["chooseleaf firstn -1 type host"],
    ["chooseleaf indep 0 type osd"],
    ["chooseleaf firstn 0 type chassis"],
    ["chooseleaf firstn 1 type host", "emit", "chooseleaf firstn -1 type rack"],
)


@dataclass
class RandomMap:
    """A map from a seed: ``text``, the number of rules, the highest device id."""

    seed: int
    devices: list[int] = field(default_factory=list)
    buckets: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        self.legacy = rng.random() < 0.3
        self.classes = rng.random() < 0.5
        # Upstream leaves memory unset where it makes shadow trees of tree buckets; and uniform ones it refuses.
        kinds = (
            ["straw2", "straw", "list"] if self.classes else ["straw2", "straw2", "uniform", "list", "tree", "straw"]
        )
        self.kinds = kinds if rng.random() < 0.5 else ["straw2"]
        self.equal = rng.random() < 0.4
        self.next_id, self.next_device = -2, 0
        self.text = self._text()

    def _weight(self) -> float:
        return 1.0 if self.equal else self.rng.choice([0, 0.5, 1, 1, 2, 3.64, self.rng.uniform(0.01, 8), 90.5])

    def _bucket(self, kind: str, name: str, items: list[tuple[str, float]]) -> tuple[str, float]:
        alg = self.rng.choice(self.kinds)
        if alg == "tree" and len(items) > 60:
            alg = "straw2"
        if alg == "uniform":
            items = [(n, items[0][1]) for n, _ in items]
        own_id = ""
        if self.rng.random() < 0.8:
            own_id = f" id {self.next_id}\n"
            self.next_id -= 1
        lines = "".join(f" item {n} weight {w:.5f}\n" for n, w in items)
        self.buckets.append(
            f"{kind} {name} {{\n{own_id} alg {alg}\n hash {self.rng.choice(['0', 'rjenkins1'])}\n{lines}}}"
        )
        return name, sum(w for _, w in items)

    def _tree(self) -> None:
        rng = self.rng
        racks, hosts, osds = rng.randint(1, 5), rng.randint(1, 5), rng.randint(1, 8)
        if rng.random() < 0.15:
            racks, hosts, osds = 1, 1, rng.choice([5, 40, 200])
        found = []
        for r in range(racks):
            rack = []
            for h in range(hosts):
                items = []
                for _ in range(rng.randint(0 if rng.random() < 0.1 else 1, osds)):
                    self.devices.append(self.next_device)
                    items.append((f"osd.{self.next_device}", self._weight()))
                    self.next_device += rng.choice([1, 1, 1, 1, 2])  # holes between ids
                if items:
                    rack.append(self._bucket("host", f"h{r}_{h}", items))
            if rack:
                found.append(self._bucket("rack", f"r{r}", rack))
        self._bucket("root", "default", found)

    def _rule(self, take: str, body: list[str]) -> None:
        rng, steps = self.rng, []
        for step, values, odd in (
            ("set_chooseleaf_tries", (1, 5), False), ("set_choose_tries", (5, 100), False),
            ("set_choose_local_tries", (0, 3), True), ("set_chooseleaf_vary_r", (0, 1, 3), True),
            ("set_chooseleaf_stable", (0, 1), True),
        ):  # fmt: skip
            if rng.random() < 0.3 and (self.legacy or not odd):
                steps.append(f"{step} {rng.choice(values)}")
        steps.append(f"take {take}")
        for part in body:
            steps += ["emit", f"take {take}"] if part == "emit" else [part]
        lines = "".join(f" step {s}\n" for s in [*steps, "emit"])
        n = len(self.rules)
        kind = rng.choice(["replicated", "erasure"])
        self.rules.append(f"rule r{n} {{\n id {n}\n type {kind}\n min_size 1\n max_size 10\n{lines}}}")

    def _choose_args(self) -> str:
        rng, parts = self.rng, []
        for bucket in self.buckets:
            size, words = bucket.count(" item "), bucket.split()
            if "id" not in words or not size or rng.random() < 0.2:
                continue
            rows = [" ".join(f"{rng.choice([0, 0.5, 1, rng.uniform(0.1, 9)]):.5f}" for _ in range(size))
                    for _ in range(rng.randint(1, 3))]  # fmt: skip
            ids = ""
            if rng.random() < 0.2:
                ids = f"\n  ids [ {' '.join(str(-rng.randint(1000, 99999)) for _ in range(size))} ]"
            sets = "\n".join(f"  [ {row} ]" for row in rows)
            parts.append(f" {{\n  bucket_id {words[words.index('id') + 1]}\n  weight_set [\n{sets}\n  ]{ids}\n }}")
        joined = "\n".join(parts)
        return f"choose_args {rng.choice(['0', '18446744073709551615'])} {{\n{joined}\n}}"

    def _text(self) -> str:
        rng = self.rng
        tunables = MODERN
        if self.legacy:
            odd = {"choose_local_tries": (0, 1, 2), "choose_local_fallback_tries": (0, 2, 5), "choose_total_tries": (19, 50),
                   "chooseleaf_descend_once": (0, 1), "chooseleaf_vary_r": (0, 1, 2, 4), "chooseleaf_stable": (0, 1),
                   "straw_calc_version": (0, 1)}  # fmt: skip
            tunables = {k: rng.choice(v) for k, v in odd.items()}
        self._tree()
        names = {d: rng.choice(["ssd", "hdd", "nvme"]) for d in self.devices if self.classes and rng.random() < 0.9}
        takes = ["default", *(f"default class {c}" for c in sorted(set(names.values())))]
        for take in takes:
            for body in rng.sample(RULES, 3):
                self._rule(take, body)
        lines = [f"tunable {k} {v}" for k, v in tunables.items()] + ["tunable allowed_bucket_algs 62"]
        lines += [f"device {d} osd.{d}" + (f" class {names[d]}" if d in names else "") for d in self.devices]
        lines += ["type 0 osd", "type 1 host", "type 2 chassis", "type 3 rack", "type 11 root"]
        lines += [*self.buckets, *self.rules]
        if rng.random() < 0.4 and self.kinds == ["straw2"]:
            lines.append(self._choose_args())
        return "\n".join(lines) + "\n"
