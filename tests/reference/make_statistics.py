#!/usr/bin/env python3
"""Writes statistics.json: what scipy and rliable make of a few samples.

Usage: make_statistics.py (needs scipy, numpy and rliable; the kept file is of the versions in it)

"images" has, for some numbers of pairs, differences of answers (-1, 0, 1) and the variance components of the crossed
design by its textbook formulas, in points."""
import json
import pathlib

import numpy
import scipy
from rliable import metrics
from scipy import stats

RANDOM = numpy.random.default_rng(29)


def samples(count, mean, deviation):
    return [round(float(x), 2) for x in RANDOM.normal(mean, deviation, count)]


def of_runs(first, second):
    scores = [numpy.array(x)[:, None] for x in (first, second)]  # rliable: runs x tasks
    row = {"first": first, "second": second,
           "iqm": [float(metrics.aggregate_iqm(x)) for x in scores],
           "improvement": float(metrics.probability_of_improvement(*scores))}
    pearson = stats.pearsonr(first, second)
    interval = pearson.confidence_interval(0.95)
    row["correlation"] = [float(pearson.statistic), float(interval.low), float(interval.high)]
    test = stats.ttest_rel(first, second)
    interval = test.confidence_interval(0.95)
    row["t"] = {"chance": float(test.pvalue), "low": float(interval.low), "high": float(interval.high)}
    # Equal within 0.3 where both one-sided tests are below 0.05: the larger of their two chances.
    differences = numpy.array(first) - numpy.array(second)
    row["equal"] = max(float(stats.ttest_1samp(differences, -0.3, alternative="greater").pvalue),
                       float(stats.ttest_1samp(differences, 0.3, alternative="less").pvalue))
    return row


def of_images(seeds, images):
    image_effect = RANDOM.normal(0, 0.6, images)
    draws = image_effect + RANDOM.normal(0, 0.5, (seeds, images)) + RANDOM.normal(0.05, 0.1, (seeds, 1))
    answers = numpy.clip(numpy.round(draws), -1, 1).astype(int)
    points = 100 * answers
    mean = points.mean()
    of_seeds = points.mean(axis=1)
    row = {"differences": answers.tolist(), "difference": float(mean)}
    of_image = points.mean(axis=0)
    if seeds == 1:
        row |= {"seed_variance": 0, "image_variance": float(of_image.var(ddof=1) / images)}
        return row
    rest = points - of_seeds[:, None] - of_image[None, :] + mean
    mean_square = (rest**2).sum() / ((seeds - 1) * (images - 1))
    row |= {"seed_variance": float(of_seeds.var(ddof=1)),
            "image_variance": float(max(0, of_image.var(ddof=1) - mean_square / seeds) / images)}
    return row


def main():
    result = {
        "versions": {"scipy": scipy.__version__, "numpy": numpy.__version__, "rliable": "1.2.0"},
        "student_t": [[n, p, float(stats.t.isf(p / 2, n))] for n in (1, 2, 9, 100) for p in (1e-6, 0.01, 0.05, 0.8)],
        "normal": [[p, float(stats.norm.isf(p / 2))] for p in (1e-9, 0.05, 0.5)],
        "mcnemar": [[a, b, float(stats.binomtest(min(a, b), a + b).pvalue) if a + b else 1.0]
                    for a, b in ((0, 0), (1, 0), (5, 5), (3, 9), (31, 12), (200, 260), (0, 60))],
        "runs": [of_runs(samples(n, 91, 0.5), samples(n, 90.6, 0.5)) for n in (5, 6, 7, 10, 12)]
                + [of_runs([90, 90, 91, 92, 90], [90, 89, 91, 91, 93])],
        "images": [of_images(n, 40) for n in (1, 2, 3, 5)],
    }
    path = pathlib.Path(__file__).with_name("statistics.json")
    path.write_text(json.dumps(result, separators=(",", ":")).replace('],"', '],\n"') + "\n")


if __name__ == "__main__":
    main()
