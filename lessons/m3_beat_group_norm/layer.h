#pragma once

#include <cstdint>
#include <string>

/// Makes your norm known to Norma by the name "my_design".
void register_my_design();

/// Trains a network of three convolutions on 1280 images of Fashion-MNIST, with this norm after each, and returns its
/// accuracy on 500 test images, in percent.
double accuracy_with(const std::string& norm, uint64_t seed);
