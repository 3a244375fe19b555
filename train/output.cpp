#include "train/output.h"

#include "core/error.h"
#include "data/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

namespace norma::train {

void cannot_write(std::string_view op, const std::filesystem::path& file, int error) {
  fail(op, "cannot write {}: {}", file.string(), std::strerror(error));
}

void make_output_folder(std::string_view op, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    cannot_write(op, folder, error.value());
  }
  const std::string probe = (folder / ".norma-write-test").string();
  std::FILE* file = std::fopen(probe.c_str(), "w");
  if (file == nullptr) {
    cannot_write(op, folder, errno);
  }
  std::fclose(file);
  std::remove(probe.c_str());
}

void write_text_file(std::string_view op, const std::filesystem::path& file, std::string_view text) {
  data::AtomicFile out(std::string(op), file);
  out.write(text.data(), text.size());
  out.commit();
}

}  // namespace norma::train
