#pragma once

#include "nn/plugin_file.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace norma::train {

/// What a figure was measured on and with.
struct Environment {
  std::string norma;                                           ///< version
  std::string cpu;                                             ///< "AMD EPYC 9B45"
  std::string system;                                          ///< "Debian GNU/Linux 12 (bookworm)"
  std::string compiler;                                        ///< "GCC 12.2.0"
  std::string build;                                           ///< "optimised, kernels for avx512"
  int64_t cores = 0;                                           ///< that this process may use
  int64_t threads = 0;                                         ///< that parallel loops use
  int64_t memory = 0;                                          ///< bytes of the machine
  std::vector<std::string> instruction_sets;                   ///< of the CPU, those that matter to tensors
  std::vector<std::pair<std::string, std::string>> libraries;  ///< name, version; by name
  std::vector<std::string> devices;                            ///< "cpu", "cuda:0"
  std::vector<nn::PluginRecord> plugins = {};                  ///< that are loaded
  std::string device;  ///< where tensors lay: "cpu", "cuda:0, NVIDIA H200, …"; "": in a file from before it was noted
};

Environment environment();

/// Where tensors lie by default, and what that is: "cpu", "cuda:0, NVIDIA H200, …".
std::string device_text();

/// As a JSON object, and back. The second throws Error, with `where` before it, for a text that is none.
std::string to_json(const Environment& environment);
Environment environment_from_json(const std::string& text, const std::string& where = "environment");

/// What a checkpoint keeps versions_json() under, in Checkpoint::options.
inline constexpr const char* kVersionsKey = "versions";
/// Norma and the libraries it computes with, which decide the bits, as a JSON object: {"norma":"1.0","oneDNN":"2.6.3"}.
std::string versions_json();

/// What a checkpoint keeps plugins_json() under, in Checkpoint::options; it has none of a run without plug-ins.
inline constexpr const char* kPluginsKey = "plugins";
/// Records of plug-ins as a JSON list, [{"file":"/my.so","sha256":"…","norms":["my"]}], and back. The second throws
/// Error, with `where` before it, for a text that is none.
std::string plugins_json(const std::vector<nn::PluginRecord>& plugins);
std::vector<nn::PluginRecord> plugins_from_json(const std::string& text, const std::string& where);
/// "/my.so (sha256 …), …".
std::string plugins_text(const std::vector<nn::PluginRecord>& plugins);

/// Name and version of the library that does convolutions and matrix products; empty where there is none.
std::vector<std::pair<std::string, std::string>> compute_libraries();

/// Date and time here and now: "2026-11-21 14:03:07", with `compact` "20261121-140307".
std::string local_time(bool compact = false);

/// Bytes of memory that the process holds now, as the system counts it; 0 where it does not say.
int64_t resident_bytes();

/// Follows the most memory that the process holds, from construction on.
/// Linux keeps that figure (VmHWM) and lets a process reset it, but not in every container; where it does not, the
/// samples that the caller takes stand in for it until the process grows beyond its old mark.
class ResidentPeak {
 public:
  /// `reset` false leaves the system's mark alone, for a caller that follows another span at the same time.
  explicit ResidentPeak(bool reset = true);
  /// Looks at what the process holds now.
  void sample();
  /// Bytes; 0 where the system does not say.
  int64_t bytes() const;

 private:
  bool exact_ = false;      ///< the system's mark started where the process stood
  int64_t first_mark_ = 0;  ///< VmHWM at construction
  int64_t highest_ = 0;     ///< of the samples
};

}  // namespace norma::train
