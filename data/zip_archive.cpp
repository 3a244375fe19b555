#include "data/zip_archive.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"

#include <zip.h>

namespace norma::data {

struct ZipArchive::Handles {
  std::unique_ptr<zip_source_t, decltype(&zip_source_free)> source{nullptr, &zip_source_free};
  std::unique_ptr<zip_t, decltype(&zip_discard)> archive{nullptr, &zip_discard};
};

ZipArchive::ZipArchive(std::string_view op, const std::filesystem::path& path, std::string_view expected)
    : op_(op),
      file_(path.string()),
      bytes_(read_text_file(op, path, kMostBytes)),
      handles_(std::make_unique<Handles>()) {
  check(!bytes_.empty(), op_, "{}: expected {}, got an empty file", file_, expected);
  zip_error_t error;
  zip_error_init(&error);
  handles_->source.reset(zip_source_buffer_create(bytes_.data(), bytes_.size(), /* freep= */ 0, &error));
  check(handles_->source != nullptr, op_, "{}: out of memory", file_);
  zip_source_keep(handles_->source.get());  // the archive takes one
  handles_->archive.reset(zip_open_from_source(handles_->source.get(), ZIP_RDONLY | ZIP_CHECKCONS, &error));
  if (handles_->archive == nullptr) {
    zip_source_free(handles_->source.get());
    const std::string text = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail(op_, "{}: expected {}: {}", file_, expected, text);
  }
  const zip_int64_t count = zip_get_num_entries(handles_->archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* const name = zip_get_name(handles_->archive.get(), static_cast<zip_uint64_t>(i), 0);
    check(name != nullptr, op_, "{}: {}", file_, zip_strerror(handles_->archive.get()));
    names_.emplace_back(name);
  }
}

ZipArchive::~ZipArchive() = default;

std::string ZipArchive::read(size_t number, uint64_t most) const {
  zip_t* const archive = handles_->archive.get();
  const std::string name = excerpt(names_[number]);
  zip_stat_t about;
  zip_stat_init(&about);
  check(zip_stat_index(archive, number, 0, &about) == 0, op_, "{}: {}: {}", file_, name, zip_strerror(archive));
  check((about.valid & ZIP_STAT_SIZE) != 0 && about.size <= most, op_, "{}: {}: expected at most {} bytes, got {}",
        file_, name, most, about.size);
  const std::unique_ptr<zip_file_t, decltype(&zip_fclose)> from(zip_fopen_index(archive, number, 0), &zip_fclose);
  check(from != nullptr, op_, "{}: {}: {}", file_, name, zip_strerror(archive));
  std::string bytes;
  constexpr size_t kPiece = size_t{1} << 20;
  while (bytes.size() <= about.size) {
    const size_t before = bytes.size();
    bytes.resize(before + kPiece);
    const zip_int64_t count = zip_fread(from.get(), bytes.data() + before, kPiece);
    check(count >= 0, op_, "{}: {}: {}", file_, name, zip_file_strerror(from.get()));
    bytes.resize(before + static_cast<size_t>(count));
    if (count == 0) {
      break;
    }
  }
  check(bytes.size() == about.size, op_, "{}: {}: expected {} bytes, got {}", file_, name, about.size, bytes.size());
  return bytes;
}

std::string ZipArchive::comment() const {
  int length = 0;
  const char* const text = zip_get_archive_comment(handles_->archive.get(), &length, 0);
  return text == nullptr ? "" : std::string(text, static_cast<size_t>(length));
}

}  // namespace norma::data
