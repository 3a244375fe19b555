#include "session/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <system_error>

namespace norma::train {

namespace {

void put_fixed(std::string& out, uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(bits >> (8 * i));
  }
}

/// A message in the wire format of protocol buffers: a field begins with its number and the kind of its value; numbers
/// are little-endian.
struct WireMessage {
  std::string bytes = {};

  WireMessage& add(int field, int64_t value) {
    put_varint(static_cast<uint64_t>(field) << 3);
    put_varint(static_cast<uint64_t>(value));
    return *this;
  }
  WireMessage& add(int field, double value) {
    put_varint(static_cast<uint64_t>(field) << 3 | 1);
    put_fixed(bytes, std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  WireMessage& add(int field, float value) {
    put_varint(static_cast<uint64_t>(field) << 3 | 5);
    put_fixed(bytes, std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  WireMessage& add(int field, std::string_view content) {
    put_varint(static_cast<uint64_t>(field) << 3 | 2);
    put_varint(content.size());
    bytes += content;
    return *this;
  }
  WireMessage& add(int field, std::span<const double> values) {
    std::string packed;
    for (const double value : values) {
      put_fixed(packed, std::bit_cast<uint64_t>(value), 8);
    }
    return add(field, packed);
  }

 private:
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes += static_cast<char>(value | 0x80);
    }
    bytes += static_cast<char>(value);
  }
};

/// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(int64_t step, int field, std::string_view content) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return WireMessage().add(1, now.count()).add(2, step).add(field, content).bytes;
}
constexpr int kFileVersion = 3;
constexpr int kSummary = 5;
constexpr int kSessionLog = 7;

constexpr std::string_view kPrefix = "events.out.tfevents.";

/// The seconds in the name of a folder's next file: the clock's, or more than those of all earlier files. TensorBoard
/// reads the files in the order of their names, and the clock may have been set back.
int64_t next_seconds(const std::filesystem::path& folder) {
  constexpr int64_t kLast = 9'999'999'998;  // names of ten digits sort as their numbers
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t number = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number).ec == std::errc() &&
        number <= kLast) {
      seconds = std::max(seconds, number + 1);
    }
  }
  return seconds;
}

/// TFRecord's mask: plain CRCs of data that contains CRCs are weak.
uint32_t masked(uint32_t crc) {
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
    table[i] = crc;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = make_crc_table();
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step) {
  for (int64_t seconds = next_seconds(folder); !file_; ++seconds) {
    path_ = folder / fmt::format("{}{:010}.{}.norma", kPrefix, seconds, ::getpid());
    file_.reset(std::fopen(path_.c_str(), "wbx"));
    if (!file_ && errno != EEXIST) {
      cannot_write("events", path_, errno);
    }
  }
  write(event(0, kFileVersion, "brain.Event:2"));
  if (first_step > 0) {
    // SessionLog: status = 1, START is 1
    write(event(first_step, kSessionLog, WireMessage().add(1, int64_t{1}).bytes));
  }
}

void EventFile::write(const std::string& event) {
  std::string length;
  put_fixed(length, event.size(), 8);
  std::string record = length;
  put_fixed(record, masked(crc32c(length)), 4);
  record += event;
  put_fixed(record, masked(crc32c(event)), 4);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() || std::fflush(file_.get()) != 0) {
    cannot_write("events", path_, errno);
  }
}

void EventFile::add_scalars(int64_t step, const Scalars& scalars) {
  WireMessage summary;  // Summary: value = 1; Value: tag = 1, simple_value = 2
  for (const auto& [tag, number] : scalars) {
    summary.add(1, WireMessage().add(1, tag).add(2, static_cast<float>(number)).bytes);
  }
  if (!scalars.empty()) {
    write(event(step, kSummary, summary.bytes));
  }
}

void EventFile::add_histogram(int64_t step, std::string_view tag, std::span<const float> values) {
  constexpr size_t kBuckets = 30;
  double least = INFINITY;
  double most = -INFINITY;
  double sum = 0;
  double squares = 0;
  int64_t count = 0;
  for (const float value : values) {
    if (std::isfinite(value)) {
      least = std::min<double>(least, value);
      most = std::max<double>(most, value);
      sum += value;
      squares += static_cast<double>(value) * value;
      ++count;
    }
  }
  if (count == 0) {
    return;
  }
  // Upper ends of the intervals. Equal values lie in one interval around them, with a width in proportion to their
  // size.
  const double width = most > least ? (most - least) / kBuckets : std::max(std::abs(most), 1.0) * 1e-6;
  std::array<double, kBuckets> limits{};
  std::array<double, kBuckets> counts{};
  for (size_t i = 0; i < kBuckets; ++i) {
    limits[i] = least + width * static_cast<double>(i + 1);
  }
  limits.back() = std::max(limits.back(), most);
  for (const float value : values) {
    if (std::isfinite(value)) {
      const auto bucket = static_cast<size_t>((value - least) / width);
      counts[std::min(bucket, kBuckets - 1)] += 1;
    }
  }
  WireMessage histogram;  // HistogramProto: min, max, num, sum, sum_squares = 1 … 5, bucket_limit = 6, bucket = 7
  histogram.add(1, least).add(2, most).add(3, static_cast<double>(count)).add(4, sum).add(5, squares);
  histogram.add(6, std::span<const double>(limits)).add(7, std::span<const double>(counts));
  const std::string value = WireMessage().add(1, tag).add(5, histogram.bytes).bytes;  // Value: tag = 1, histo = 5
  write(event(step, kSummary, WireMessage().add(1, value).bytes));
}

}  // namespace norma::train
