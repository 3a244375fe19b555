#include "nn/plugin.h"

NORMA_PLUGIN {
  norma::nn::register_norm("my", [](int64_t) { return nullptr; });
  norma::nn::register_norm("batch", [](int64_t) { return nullptr; });
}
