#pragma once

#include "nn/plugin_file.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace norma::train {

/// The machine and the software of a measurement.
struct Environment {
  std::string norma;                             ///< version
  std::string cpu;                               ///< "AMD EPYC 9B45"
  std::string system;                            ///< "Debian GNU/Linux 12 (bookworm)"
  std::string compiler;                          ///< "GCC 12.2.0"
  std::string build;                             ///< "optimized, kernels for avx512"
  int64_t cores = 0;                             ///< cores that this process may use
  int64_t threads = 0;                           ///< threads of parallel loops, in each process
  int64_t processes = 1;                         ///< that train together
  int64_t memory = 0;                            ///< bytes of the machine
  std::vector<std::string> instruction_sets;     ///< of the CPU, as far as they matter to tensors
  std::map<std::string, std::string> libraries;  ///< versions by name
  std::vector<std::string> devices;              ///< "cpu", "cuda:0"
  std::vector<nn::PluginRecord> plugins = {};    ///< loaded ones
  std::string device;  ///< the tensors' device: "cpu", "cuda:0, NVIDIA H200, …"; "" in older files, which lack it
  std::optional<bool> exact_convolutions = {};  ///< conv2d_mode(); none in older files, which lack it
};

Environment environment();

/// "2 threads"; "1 thread in each of 2 processes".
std::string threads_text(const Environment& environment);

/// The default device and its hardware: "cpu", "cuda:0, NVIDIA H200, …".
std::string device_text();

/// As a JSON object, and back. Reading throws Error that begins with `where` for another text.
std::string to_json(const Environment& environment);
Environment environment_from_json(const std::string& text, const std::string& where = "environment");

/// The key in Checkpoint::options for versions_json().
inline constexpr const char* kVersionsKey = "versions";
/// What decides the bits, as JSON: the versions of Norma and its compute libraries, and "conv" where convolutions are
/// exact, {"norma":"1.0","oneDNN":"2.6.3","conv":"exact"}.
std::string versions_json();

/// The key in Checkpoint::options for plugins_json(); a run without plug-ins has none.
inline constexpr const char* kPluginsKey = "plugins";
/// Records of plug-ins as a JSON list, [{"file":"/my.so","sha256":"…","norms":["my"]}], and back. Reading throws Error
/// that begins with `where` for another text.
std::string plugins_json(const std::vector<nn::PluginRecord>& plugins);
std::vector<nn::PluginRecord> plugins_from_json(const std::string& text, const std::string& where);
/// What a checkpoint says of the program that wrote it: kVersionsKey and, with plug-ins, kPluginsKey.
std::map<std::string, std::string> checkpoint_notes();

/// "/my.so (sha256 …), …".
std::string plugins_text(const std::vector<nn::PluginRecord>& plugins);

/// Name and version of the library for convolutions and matrix products; empty if there is none.
std::vector<std::pair<std::string, std::string>> compute_libraries();

/// Date and time here and now: "2026-11-21 14:03:07", with `compact` "20261121-140307".
std::string local_time(bool compact = false);

/// Bytes of memory that the process holds now, by the system's count; 0 if it gives none.
int64_t resident_bytes();

/// Follows the most memory that the process holds, from construction on. Linux keeps that figure (VmHWM) and lets a
/// process reset it, but not in every container. Without a reset, the caller's samples stand in until the process grows
/// beyond its old mark.
class ResidentPeak {
 public:
  /// `reset` false leaves the system's mark alone, for a caller that follows another span at the same time.
  explicit ResidentPeak(bool reset = true);
  /// Takes the memory that the process holds now into account.
  void sample();
  /// The peak in bytes; 0 if the system gives none.
  int64_t bytes() const;

 private:
  bool exact_ = false;      ///< the system's mark was reset at construction
  int64_t first_mark_ = 0;  ///< VmHWM at construction
  int64_t highest_ = 0;     ///< of all samples
};

}  // namespace norma::train
