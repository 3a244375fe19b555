#include "nn/plugin.h"

// As built with the headers of another Norma.
extern "C" {
extern const norma::nn::PluginAbi norma_plugin_abi;
const norma::nn::PluginAbi norma_plugin_abi = {norma::nn::kPluginAbi[0] + 1};
void norma_register_plugin() {}
}
