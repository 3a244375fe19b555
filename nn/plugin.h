#pragma once

#include "core/tape.h"
#include "nn/module.h"
#include "nn/norm/factory.h"
#include "nn/plugin_file.h"
#include "ops/norm/spec.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace norma::nn {

// A plug-in is a shared library with norms of your own. The norma command loads it: norma compare --plugin ./libmy.so
// --norms my,batch. One of its files has
//
//   NORMA_PLUGIN {
//     norma::nn::register_norm("my", [](int64_t channels) { return std::make_shared<MyNorm>(channels); });
//   }
//
// It is linked to the CMake target norma::plugin, which is headers alone: the program that loads it has the code.

/// Facts that must be the same for a plug-in and for the program that loads it, as each of them was compiled.
using PluginAbi = std::array<int64_t, 8>;

/// The first number rises with every change of a header that matters to plug-ins but changes none of the other numbers.
inline constexpr PluginAbi kPluginAbi{
    4,
    __GXX_ABI_VERSION,
#ifdef _GLIBCXX_USE_CXX11_ABI
    _GLIBCXX_USE_CXX11_ABI,
#else
    0,
#endif
    sizeof(Tensor),
    sizeof(Module),
    sizeof(NormDefinition),
    sizeof(NormSpec),
    sizeof(BackwardContext),
};

/// Loads a plug-in, which registers its norms, and keeps it until the program ends. That runs code of the file. Throws
/// Error as PluginFile, for a file that cannot be loaded, that is no plug-in or was built for another Norma, that
/// registers nothing or a name that is taken, and what its registration throws.
void load_plugin(const std::filesystem::path& file);

/// Loads the bytes that the file's record describes, even if the file has been changed since. Throws as the function
/// above. The system's loader knows no folder of them, so it finds no libraries of the plug-in by $ORIGIN. That is
/// intended, since no record would describe their bytes.
void load_plugin(const PluginFile& file);

/// The loaded plug-ins, in the order of loading.
const std::vector<PluginRecord>& loaded_plugins();

}  // namespace norma::nn

/// Begins the function that registers a plug-in's norms.
#define NORMA_PLUGIN                                                                             \
  extern "C" __attribute__((visibility("default"))) const norma::nn::PluginAbi norma_plugin_abi; \
  const norma::nn::PluginAbi norma_plugin_abi = norma::nn::kPluginAbi;                           \
  extern "C" __attribute__((visibility("default"))) void norma_register_plugin();                \
  void norma_register_plugin()
