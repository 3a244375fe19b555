#pragma once

#include <string>

namespace norma::train {

struct TrainingState;

/// What has to be the same in all processes of a run: a line each, "name<tab>value". Version, libraries, byte order,
/// step, recipe, and the SHA-256 of the weights and of some images.
std::string facts_of(const TrainingState& run);
/// The first line of `other` that differs from `first`: "--lr: expected 0.1, as rank 0 has, got 0.2"; "" if none does.
std::string difference_of_facts(const std::string& first, const std::string& other);

}  // namespace norma::train
