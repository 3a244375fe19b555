#include "data/dataset.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "core/allocator.h"
#include "data/atomic_file.h"
#include "data/image_formats.h"
#include "data/transform.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace norma::data {

namespace {

constexpr const char* kOp = "imagefolder";
constexpr int kMaxDepth = 32;  // a link to a folder above it would never end
/// The limit of folders in a class. Two links in each of 32 folders to the next would make four thousand million.
constexpr int64_t kMaxFolders = int64_t{1} << 16;
/// torchvision.datasets.folder.IMG_EXTENSIONS and .gif.
constexpr std::array<std::string_view, 10> kExtensions = {".jpg", ".jpeg", ".png",  ".ppm",  ".bmp",
                                                          ".pgm", ".tif",  ".tiff", ".webp", ".gif"};

/// Throws Error unless the name is UTF-8: names are shown, and class names are kept in checkpoints, whose text is
/// UTF-8.
void check_name(const std::filesystem::path& folder, const std::string& name) {
  check(is_utf8(name), kOp, "{}: expected names in UTF-8, got '{}'", folder.string(), excerpt(name));
}

struct Entries {
  std::vector<std::string> folders;
  std::vector<std::string> files;
};

/// What lies there and is not used.
struct LeftOut {
  int64_t hidden = 0;                        ///< names that begin with a point, as those that other programs leave
  std::vector<std::filesystem::path> files;  ///< of other names
};

/// The contents of a folder, sorted.
Entries entries_of(const std::filesystem::path& folder, LeftOut& left_out) {
  std::error_code error;
  Entries entries;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code dangling;  // a link to nothing counts as a file, and is an error when it is read
    auto& list = entry->is_directory(dangling) ? entries.folders : entries.files;
    std::string name = entry->path().filename().string();
    if (name.starts_with('.')) {
      ++left_out.hidden;
    } else {
      list.push_back(std::move(name));
    }
  }
  check(!error, kOp, "cannot read {}: {}", folder.string(), error.message());
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.files);
  return entries;
}

bool is_image_name(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::ranges::any_of(kExtensions, [&](std::string_view end) { return name.ends_with(end); });
}

/// The names of the images in each folder; the folder's name is relative to the split.
using ImagesByFolder = std::vector<std::pair<std::string, std::vector<std::string>>>;

/// `folders` counts the folders visited.
void find_images(const std::filesystem::path& split, const std::string& folder, int depth, int64_t& folders,
                 ImagesByFolder& found, LeftOut& left_out) {
  const std::filesystem::path path = split / folder;
  check(++folders <= kMaxFolders, kOp, "{}: expected at most {} folders in a class, got more (links to the same ones?)",
        (split / folder.substr(0, folder.find('/'))).string(), kMaxFolders);
  check(depth <= kMaxDepth, kOp, "{}: expected at most {} folders in each other, got more (a link to one above?)",
        path.string(), kMaxDepth);
  Entries entries = entries_of(path, left_out);
  std::erase_if(entries.files, [&](const std::string& name) {
    const bool is_other = !is_image_name(name);
    if (is_other) {
      left_out.files.push_back(path / name);
    }
    return is_other;
  });
  for (const auto* names : {&entries.folders, &entries.files}) {
    for (const std::string& name : *names) {
      check_name(path, name);
    }
  }
  if (!entries.files.empty()) {
    found.emplace_back(folder, std::move(entries.files));
  }
  for (const std::string& name : entries.folders) {
    find_images(split, fmt::format("{}/{}", folder, name), depth + 1, folders, found, left_out);
  }
}

std::vector<std::string> class_names_in(const std::filesystem::path& split, LeftOut& left_out) {
  const Entries entries = entries_of(split, left_out);
  for (const std::string& name : entries.files) {
    left_out.files.push_back(split / name);
  }
  const std::vector<std::string>& names = entries.folders;
  check(!names.empty(), kOp, "{}: expected a folder for each class, found none", split.string());
  for (const std::string& name : names) {
    check_name(split, name);
  }
  return entries.folders;
}

/// The first of these folders that is there; empty if there is none.
std::filesystem::path first_of(const std::filesystem::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (is_folder(kOp, folder / name)) {
      return folder / name;
    }
  }
  return {};
}

class ImageFolder final : public Dataset {
 public:
  ImageFolder(const std::filesystem::path& train, std::filesystem::path split, const DatasetOptions& options)
      : split_(std::move(split)),
        skip_bad_images_(options.skip_bad_images),
        turns_(options.exif_orientation),
        enough_(options.enough) {
    info_.name = "imagefolder";
    info_.channels = 3;
    info_.sorted_by_label = true;
    info_.mean.assign(kImageNetMean.begin(), kImageNetMean.end());
    info_.std.assign(kImageNetStd.begin(), kImageNetStd.end());
    LeftOut elsewhere;
    info_.class_names = class_names_in(train.empty() ? split_ : train, elsewhere);
    const std::vector<std::string> here = class_names_in(split_, left_out_);
    for (const std::string& name : here) {
      add_class(name, train);
    }
    std::set_difference(info_.class_names.begin(), info_.class_names.end(), here.begin(), here.end(),
                        std::back_inserter(info_.empty_classes));
    info_.size = static_cast<int64_t>(samples_.size());
  }

  int64_t load(int64_t index, Image& image) const override {
    return load_by(index, [&](std::string_view bytes, const std::string& name) {
      decode_window(bytes, name, info_.channels, {.upright = turns_, .enough = enough_}, image);
    });
  }

  int64_t load_window(int64_t index, const ChooseWindow& choose, Image& image, Rectangle& window) const override {
    return load_by(index, [&](std::string_view bytes, const std::string& name) {
      window = decode_window(bytes, name, info_.channels, {choose, turns_, enough_}, image);
    });
  }

  [[nodiscard]] int64_t label(int64_t index) const override { return samples_[static_cast<size_t>(index)].label; }

  [[nodiscard]] std::vector<std::string> skipped() const override {
    const std::lock_guard lock(mutex_);
    return {skipped_.begin(), skipped_.end()};
  }

  [[nodiscard]] std::vector<std::string> left_out() const override {
    std::map<std::string, int64_t> kinds;
    int64_t unreadable = 0;
    for (const std::filesystem::path& file : left_out_.files) {
      std::array<char, 32> begin = {};
      std::error_code none;
      if (!std::filesystem::is_regular_file(file, none)) {  // a pipe would wait for ever
        continue;
      }
      try {
        InputFile input(kOp, file, UINT64_MAX);
        const std::string_view bytes(begin.data(), input.read(begin.data(), begin.size()));
        if (const ImageKind* const kind = image_kind(bytes); kind != nullptr) {
          ++kinds[kind->what];
        }
      } catch (const Error&) {  // nobody asked for this file
        ++unreadable;
      }
    }
    std::vector<std::string> lines;
    if (left_out_.hidden > 0) {
      lines.push_back(fmt::format("{} whose names begin with a point", left_out_.hidden));
    }
    for (const auto& [what, count] : kinds) {
      lines.push_back(
          fmt::format("{} that look like {} and lie beside the classes or have another ending", count, what));
    }
    if (unreadable > 0) {
      lines.push_back(
          fmt::format("{} that may not be read and lie beside the classes or have another ending", unreadable));
    }
    return lines;
  }

 private:
  struct Sample {
    std::string file;  ///< relative to split_
    int64_t label = 0;
  };

  /// Calls decode() with the file's bytes or, to skip bad images, those of the next good one. Returns the label.
  template <class Decode>
  int64_t load_by(int64_t index, Decode&& decode) const {
    check(index >= 0 && index < info_.size, kOp, "index: expected a value in [0, {}), got {}", info_.size, index);
    for (int64_t tried = 0; tried < info_.size; ++tried) {
      const Sample& sample = samples_[static_cast<size_t>((index + tried) % info_.size)];
      const std::filesystem::path file = split_ / sample.file;
      // A file that cannot be read is not skipped: it may be readable the next time.
      const std::string bytes = read_text_file(kOp, file, kMaxImageBytes);
      try {
        decode(bytes, file.string());
        return sample.label;
      } catch (const OutOfMemory&) {  // not skipped: with more memory the image would load
        throw;
      } catch (const Error& error) {
        if (!skip_bad_images_) {
          throw Error(fmt::format("{} (--skip-bad-images takes the next image in its place)", error.what()));
        }
        const std::lock_guard lock(mutex_);
        skipped_.insert(split_.filename() / sample.file);
      }
    }
    fail(kOp, "{}: none of the {} images can be decoded", split_.string(), info_.size);
  }

  void add_class(const std::string& name, const std::filesystem::path& train) {
    const auto known = std::lower_bound(info_.class_names.begin(), info_.class_names.end(), name);
    check(known != info_.class_names.end() && *known == name, kOp,
          "{}: class '{}': expected one of the {} classes of {}", split_.string(), excerpt(name), info_.num_classes(),
          train.string());
    ImagesByFolder found;
    int64_t folders = 0;
    find_images(split_, name, /* depth= */ 1, folders, found, left_out_);
    check(!found.empty(), kOp, "{}: class '{}': expected images ({}), found none", split_.string(), excerpt(name),
          fmt::join(kExtensions, " "));
    std::ranges::sort(found);  // "a-b" before "a/b", as Python sorts them
    for (const auto& [folder, files] : found) {
      for (const std::string& file : files) {
        samples_.push_back({.file = fmt::format("{}/{}", folder, file), .label = known - info_.class_names.begin()});
      }
    }
  }

  std::filesystem::path split_;
  bool skip_bad_images_;
  bool turns_;
  int64_t enough_;
  LeftOut left_out_;
  std::vector<Sample> samples_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> skipped_;
};

}  // namespace

std::shared_ptr<const Dataset> make_image_folder(const DatasetOptions& options) {
  const std::filesystem::path& folder = options.folder;
  check(!folder.empty(), kOp, "expected a folder with the folders train and val (option --data-dir), got none");
  check_folder(kOp, folder);
  const std::filesystem::path train = first_of(folder, {"train"});
  if (options.split == Split::train) {
    check(!train.empty(), kOp, "{}: expected a folder train with a folder for each class, found none", folder.string());
    return std::make_shared<ImageFolder>(train, train, options);
  }
  const std::filesystem::path test = first_of(folder, {"val", "validation", "test"});
  check(!test.empty(), kOp, "{}: expected a folder val, validation or test with a folder for each class, found none",
        folder.string());
  return std::make_shared<ImageFolder>(train, test, options);
}

}  // namespace norma::data
