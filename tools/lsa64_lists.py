"""Write a CSV of LSA64 with other signers, signs or numbers of videos than the usual split, to be trained on.

python tools/lsa64_lists.py ../shared/data/lsa64 few5.csv --train 1-8 --test 9-10 --signs 23 --videos 5 --seed 0
python tools/lsa64_lists.py ../shared/data/lsa64 signs23.csv --train 1-6 --val 7-8 --test 9-10

The training videos of a sign are drawn by the seed over all training signers. The test signers are the split "val",
which a run scores, unless there are others to tune on: then they are the split "test".
"""

import argparse
import csv
import random
from collections import defaultdict
from pathlib import Path


def signers(text: str) -> range:
    first, last = map(int, text.split("-"))
    return range(first, last + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=signers, default="1-8")
    parser.add_argument("--val", type=signers, help="signers to tune on; none if not given")
    parser.add_argument("--test", type=signers, default="9-10")
    parser.add_argument("--signs", type=int, choices=(23, 64), default=23)
    parser.add_argument("--videos", type=int, help="training videos of a sign; all if not given")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    with (given.data / "index.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if given.signs == 64 or row["recording_set"] == "1"]
    by_sign = defaultdict(list)
    for row in rows:
        if int(row["subject"]) in given.train:
            by_sign[row["class"]].append(row)
    chance = random.Random(given.seed)
    drawn = [
        row
        for _, videos in sorted(by_sign.items())
        for row in (videos if given.videos is None else chance.sample(videos, min(given.videos, len(videos))))
    ]
    splits = {"train": drawn}
    for split, chosen in (("val", given.test),) if given.val is None else (("val", given.val), ("test", given.test)):
        splits[split] = [row for row in rows if int(row["subject"]) in chosen]
    with given.out.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "split", "group"])
        for split, listed in splits.items():
            table.writerows([given.data.resolve() / row["path"], row["class"], split, row["subject"]] for row in listed)


if __name__ == "__main__":
    main()
