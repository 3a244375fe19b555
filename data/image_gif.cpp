#include "data/image_formats.h"

#include <fmt/format.h>
#include <gif_lib.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace norma::data {

namespace {

struct CloseGif {
  void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
};

int read_gif(GifFileType* file, GifByteType* to, int count) {
  auto& bytes = *static_cast<std::string_view*>(file->UserData);
  const size_t there = std::min(bytes.size(), static_cast<size_t>(count));
  std::copy_n(bytes.data(), there, to);
  bytes.remove_prefix(there);
  return static_cast<int>(there);
}

}  // namespace

void decode_gif(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  int error = 0;
  const std::unique_ptr<GifFileType, CloseGif> file(DGifOpen(&bytes, read_gif, &error));
  const auto check_good = [&](bool good) {
    const int code = file == nullptr ? error : file->Error;
    if (!good && code == D_GIF_ERR_NOT_ENOUGH_MEM) {
      throw std::bad_alloc();
    }
    const char* const text = good ? "" : GifErrorString(code);
    check_fault(good ? "" : bytes.empty() || text == nullptr ? "it ends early" : text, name);
  };
  check_good(file != nullptr);
  int background = 0;  // what the first frame leaves free has the transparent color, else the first
  GifRecordType record = UNDEFINED_RECORD_TYPE;
  for (; record != IMAGE_DESC_RECORD_TYPE;) {
    check_good(DGifGetRecordType(file.get(), &record) == GIF_OK);
    check_fault(record == TERMINATE_RECORD_TYPE ? "it has no picture" : "", name);
    int code = 0;
    GifByteType* block = nullptr;
    if (record == EXTENSION_RECORD_TYPE) {
      check_good(DGifGetExtension(file.get(), &code, &block) == GIF_OK);
      while (block != nullptr) {
        GraphicsControlBlock control = {};
        if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
          background = std::max(control.TransparentColor, 0);
        }
        check_good(DGifGetExtensionNext(file.get(), &block) == GIF_OK);
      }
    }
  }
  check_good(DGifGetImageDesc(file.get()) == GIF_OK);
  const GifImageDesc& frame = file->Image;
  // A frame that is larger than its screen makes that larger.
  const int64_t height = std::max<int64_t>(file->SHeight, int64_t{frame.Top} + frame.Height);
  const int64_t width = std::max<int64_t>(file->SWidth, int64_t{frame.Left} + frame.Width);
  check_image_size(name, height, width);
  constexpr int64_t kMostPixels = 4096;  // of a code, which has 12 bits where it stands for so many
  check_fault(
      int64_t{frame.Height} * frame.Width > kMostPixels * static_cast<int64_t>(bytes.size()) ? "it ends early" : "",
      name);
  const ColorMapObject* const map = frame.ColorMap != nullptr ? frame.ColorMap : file->SColorMap;
  const auto color = [&](int index) -> Rgb {
    if (map == nullptr) {
      return {index, index, index};
    }
    if (index >= map->ColorCount && index == background) {  // a transparent color that has none: Pillow's is black
      return {0, 0, 0};
    }
    if (index >= map->ColorCount) {
      check_fault(fmt::format("a pixel has color {} of a palette of {}", index, map->ColorCount), name);
    }
    const GifColorType& c = map->Colors[index];
    return {c.Red, c.Green, c.Blue};
  };
  image.set_size(height, width, channels);
  for (int64_t i = 0; i < height * width; ++i) {
    put(color(background), channels, image.pixels.data() + i * channels);
  }
  std::vector<GifPixelType> row(static_cast<size_t>(frame.Width));
  // Interlaced are every 8th row, those in the middle between, and so on.
  using Passes = std::vector<std::pair<int, int>>;
  for (const auto& [first, step] : frame.Interlace ? Passes{{0, 8}, {4, 8}, {2, 4}, {1, 2}} : Passes{{0, 1}}) {
    for (int64_t y = first; y < frame.Height; y += step) {
      check_good(DGifGetLine(file.get(), row.data(), frame.Width) == GIF_OK);
      uint8_t* to = image.pixels.data() + ((frame.Top + y) * width + frame.Left) * channels;
      for (const GifPixelType index : row) {
        put(color(index), channels, to);
        to += channels;
      }
    }
  }
}

}  // namespace norma::data
