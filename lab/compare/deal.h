#pragma once

#include "lab/report/report.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma::lab {

/// The share of a comparison that one machine runs: number 2 of 4.
struct PartOf {
  int64_t number = 1;  ///< from 1
  int64_t count = 0;   ///< 0: the comparison is not divided
};

/// Reads "2/4". Throws Error "compare: part: expected K/N with K from 1 to N, …".
PartOf parse_part(const std::string& text);

/// Estimates what each cell costs, with the rounds of timing and trials that its part makes because of it. It is
/// counted from the shapes in the networks, without a clock, and in whole numbers: every machine gets the same. A cell
/// whose network throws costs nothing. Networks that runs start from (make_sources()) are not counted: each part trains
/// those of its cells, and parts of about the same cost need about the same.
std::vector<int64_t> estimate_costs(const Comparison& comparison);

/// Deals the cells out to `count` parts: the most expensive ones first, each to the part that has the least so far.
/// With tune_lr, cells that differ only in the seed stay together, since they share their trials. Returns each cell's
/// part, from 1. Throws Error "compare: part: …" for more parts than there is to deal.
std::vector<int64_t> deal(const Comparison& comparison, const std::vector<int64_t>& costs, int64_t count);
/// The same by estimate_costs().
std::vector<int64_t> deal(const Comparison& comparison, int64_t count);

/// Marks the cells of other parts, which do not run here (CellState::elsewhere).
void take_part(Comparison& comparison, const PartOf& part, const std::vector<int64_t>& dealt);

}  // namespace norma::lab
