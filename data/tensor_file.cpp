#include "data/tensor_file.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "data/atomic_file.h"
#include "data/json.h"
#include "data/npy.h"
#include "data/zip_archive.h"

#include <nlohmann/json.hpp>

#include <zip.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string_view>

namespace norma::data {

namespace {

constexpr uint64_t kMaxFile = uint64_t{64} << 30;
constexpr std::string_view kOp = "npz";
constexpr std::string_view kExpected = "a zip archive of .npy files";

using Source = std::unique_ptr<zip_source_t, decltype(&zip_source_free)>;
using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;

/// The metadata that write_npz() has put into the archive's comment; anybody may have put another text there.
std::map<std::string, std::string> metadata_in(std::string_view comment) {
  std::map<std::string, std::string> metadata;
  try {
    const nlohmann::json json = parse_json(kOp, "comment", comment);
    for (const auto& [key, value] : json.items()) {
      if (json.is_object() && value.is_string()) {
        metadata[key] = value.get<std::string>();
      }
    }
  } catch (const Error&) {
  }
  return metadata;
}

Safetensors read_npz(const std::filesystem::path& path) {
  const std::string file = path.string();
  const ZipArchive archive(kOp, path, kExpected);
  Safetensors result;
  std::set<std::string> names;
  for (size_t i = 0; i < archive.names().size(); ++i) {
    std::string name = archive.names()[i];
    check(name.ends_with(".npy"), kOp, "{}: expected .npy files, got {}", file, excerpt(name));
    name.resize(name.size() - std::string_view(".npy").size());
    check(names.insert(name).second, kOp, "{}: tensor '{}': the name appears twice", file, excerpt(name));
    result.tensors.emplace_back(name, tensor_of_npy(file + ": " + excerpt(name), archive.read(i)));
  }
  result.metadata = metadata_in(archive.comment());
  return result;
}

void write_npz(const std::filesystem::path& path, const NamedTensors& tensors,
               const std::map<std::string, std::string>& metadata) {
  const std::string file = path.string();
  AtomicFile out(std::string(kOp), path);  // first, so that a folder that is not there is found before the work
  const Source target(zip_source_buffer_create(nullptr, 0, /* freep= */ 0, nullptr), &zip_source_free);
  check(target != nullptr, kOp, "{}: out of memory", file);
  zip_error_t error;
  zip_error_init(&error);
  zip_source_keep(target.get());  // the archive takes one
  Archive archive(zip_open_from_source(target.get(), ZIP_TRUNCATE | ZIP_CREATE, &error), &zip_discard);
  check(archive != nullptr, kOp, "{}: out of memory", file);
  std::vector<std::string> contents;  // libzip reads them in zip_close()
  contents.reserve(tensors.size());
  for (const auto& [name, x] : tensors) {
    const std::string& bytes = contents.emplace_back(npy_bytes(x));
    zip_source_t* const source = zip_source_buffer(archive.get(), bytes.data(), bytes.size(), /* freep= */ 0);
    const zip_int64_t index =
        source == nullptr ? -1 : zip_file_add(archive.get(), (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      fail(kOp, "{}: tensor '{}': {}", file, excerpt(name), zip_strerror(archive.get()));
    }
    // Not compressed, as by numpy.savez(): the numbers of a network hardly become fewer.
    zip_set_file_compression(archive.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
  }
  if (!metadata.empty()) {
    const std::string comment = json_text(nlohmann::json(metadata));
    check(comment.size() <= 65535 &&
              zip_set_archive_comment(archive.get(), comment.c_str(), static_cast<zip_uint16_t>(comment.size())) == 0,
          kOp, "{}: metadata: expected at most 65535 bytes, got {}", file, comment.size());
  }
  check(zip_close(archive.get()) == 0, kOp, "{}: {}", file, zip_strerror(archive.get()));
  (void)archive.release();  // closed
  check(zip_source_open(target.get()) == 0, kOp, "{}: the archive cannot be read back", file);
  std::string piece(size_t{1} << 20, '\0');
  zip_int64_t count = 0;
  while ((count = zip_source_read(target.get(), piece.data(), piece.size())) > 0) {
    out.write(piece.data(), static_cast<size_t>(count));
  }
  check(count == 0, kOp, "{}: the archive cannot be read back", file);
  zip_source_close(target.get());
  out.commit();
}

}  // namespace

Safetensors read_tensor_file(const std::filesystem::path& file) {
  if (file.extension() == ".npy") {
    return {.tensors = {{"input", tensor_of_npy(file.string(), read_text_file("npy", file, kMaxFile))}},
            .metadata = {}};
  }
  return file.extension() == ".npz" ? read_npz(file) : load_safetensors(file);
}

void write_tensor_file(const std::filesystem::path& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  if (file.extension() == ".npz") {
    write_npz(file, tensors, metadata);
  } else if (file.extension() == ".npy") {
    check(tensors.size() == 1, "npy", "{}: expected one tensor, got {}; a .npz file holds several", file.string(),
          tensors.size());
    const std::string bytes = npy_bytes(tensors.front().second);
    AtomicFile out("npy", file);
    out.write(bytes.data(), bytes.size());
    out.commit();
  } else {
    save_safetensors(file, tensors, metadata);
  }
}

}  // namespace norma::data
