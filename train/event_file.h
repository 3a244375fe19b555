#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
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
  /// Starts a file of its own, "events.out.tfevents.<seconds>.<process>.norma", in a folder that is there; its name
  /// comes after those of all others there, whatever the clock says.
  /// `first_step`: TensorBoard drops what earlier files of the folder say of this step and later ones; 0: nothing.
  /// Throws Error that names the file when it cannot be written, as the others do.
  explicit EventFile(const std::filesystem::path& folder, int64_t first_step = 0);

  using Scalars = std::vector<std::pair<std::string, double>>;
  /// One point of each curve: tag and value. They are kept as float32.
  void add_scalars(int64_t step, const Scalars& scalars);
  /// How often which values occur, in 30 equal intervals from the smallest to the largest. Values that are not finite
  /// are left out; without any other there is no event.
  void add_histogram(int64_t step, std::string_view tag, std::span<const float> values);

  [[nodiscard]] const std::filesystem::path& file() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void write(const std::string& event);

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace norma::train
