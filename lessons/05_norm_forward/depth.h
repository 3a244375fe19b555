#pragma once

#include <string>

/// Numbers go through 20 layers of random weights, and gradients come back, with and without a norm.
void drift(const std::string& folder);

/// Milestone 1's network is trained at several learning rates, with and without a norm.
void rates();
