#pragma once

#include "session/output.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::train {

/// The CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected) of bytes.
uint32_t crc32c(std::string_view bytes);

/// An event file that TensorBoard reads: records of TFRecord (length, its masked CRC-32C, bytes, their masked CRC-32C),
/// each a protocol buffer `Event` of TensorBoard's event.proto and summary.proto. Every event is on the disk when the
/// call returns.
class EventFile {
 public:
  /// Starts a new file, "events.out.tfevents.<seconds>.<process>.norma", in an existing folder; its name sorts after
  /// all others there, whatever the clock says. `first_step`: TensorBoard drops the points of this step and later ones
  /// in earlier files of the folder; 0: none. Throws Error that names the file when it cannot be written, as the other
  /// functions do.
  explicit EventFile(const std::filesystem::path& folder, int64_t first_step = 0);

  using Scalars = std::vector<std::pair<std::string, double>>;
  /// Adds one point to each curve: tag and value, kept as float32.
  void add_scalars(int64_t step, const Scalars& scalars);
  /// Adds the counts of values in 30 equal intervals from the smallest to the largest. Values that are not finite are
  /// left out; if no others remain, there is no event.
  void add_histogram(int64_t step, std::string_view tag, std::span<const float> values);

  [[nodiscard]] const std::filesystem::path& file() const { return path_; }

 private:
  void write(const std::string& event);

  std::filesystem::path path_;
  OpenFile file_;
};

}  // namespace norma::train
