#include "data/image_formats.h"

#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <new>
#include <vector>

namespace norma::data {

namespace {

/// The bytes of a file, as libtiff reads them, and its first complaint.
struct TiffSource {
  std::string_view bytes;
  size_t at = 0;
  std::string fault = {};

  static tmsize_t read(thandle_t self, void* to, tmsize_t count) {
    auto& source = *static_cast<TiffSource*>(self);
    const std::string_view rest = source.bytes.substr(std::min(source.at, source.bytes.size()));
    const size_t there = std::min(rest.size(), static_cast<size_t>(count));
    std::copy_n(rest.data(), there, static_cast<char*>(to));
    source.at += there;
    return static_cast<tmsize_t>(there);
  }
  static toff_t seek(thandle_t self, toff_t offset, int from) {
    auto& source = *static_cast<TiffSource*>(self);
    source.at = offset + (from == SEEK_CUR ? source.at : from == SEEK_END ? source.bytes.size() : 0);
    return source.at;
  }
  static toff_t size(thandle_t self) { return static_cast<TiffSource*>(self)->bytes.size(); }
  static int map(thandle_t self, void** base, toff_t* size) {
    const std::string_view bytes = static_cast<TiffSource*>(self)->bytes;
    *base = const_cast<char*>(bytes.data());  // libtiff does not write where it reads
    *size = bytes.size();
    return 1;
  }
  static int take_fault(TIFF* /*file*/, void* self, const char* /*module*/, const char* format, va_list values) {
    std::array<char, 256> text = {};
    std::vsnprintf(text.data(), text.size(), format, values);
    if (std::string& fault = static_cast<TiffSource*>(self)->fault; fault.empty()) {
      fault = text.data();
    }
    return 1;
  }
};

struct CloseTiff {
  void operator()(TIFF* file) const { TIFFClose(file); }
  void operator()(TIFFOpenOptions* options) const { TIFFOpenOptionsFree(options); }
  void operator()(TIFFRGBAImage* picture) const { TIFFRGBAImageEnd(picture); }
};

}  // namespace

void decode_tiff(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  TiffSource source{.bytes = bytes};
  const auto check_good = [&](bool good) {
    for (const char* memory : {"Out of memory", "No space", "Failed to allocate"}) {
      if (!good && source.fault.starts_with(memory)) {
        throw std::bad_alloc();
      }
    }
    check_fault(good ? "" : source.fault.empty() ? "libtiff gives no reason" : source.fault, name);
  };
  const std::unique_ptr<TIFFOpenOptions, CloseTiff> options(TIFFOpenOptionsAlloc());
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), tmsize_t{1} << 30);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), TiffSource::take_fault, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(
      options.get(), [](TIFF*, void*, const char*, const char*, va_list) { return 1; }, nullptr);
  const std::unique_ptr<TIFF, CloseTiff> file(TIFFClientOpenExt(
      name.c_str(), "r", &source, TiffSource::read, [](thandle_t, void*, tmsize_t) { return tmsize_t{0}; },
      TiffSource::seek, [](thandle_t) { return 0; }, TiffSource::size, TiffSource::map, [](thandle_t, void*, toff_t) {},
      options.get()));
  check_good(file != nullptr);
  uint32_t height = 0;
  uint32_t width = 0;
  TIFFGetField(file.get(), TIFFTAG_IMAGELENGTH, &height);
  TIFFGetField(file.get(), TIFFTAG_IMAGEWIDTH, &width);
  check_image_size(name, height, width);

  TIFFRGBAImage state = {};
  std::array<char, 1024> reason = {};
  if (TIFFRGBAImageBegin(&state, file.get(), /* stop_on_error= */ 1, reason.data()) == 0) {
    source.fault = source.fault.empty() ? reason.data() : source.fault;
    check_good(false);
  }
  const std::unique_ptr<TIFFRGBAImage, CloseTiff> picture(&state);
  // As Pillow: of 16 bits the upper 8, and colors as they are, not multiplied by their opacity.
  constexpr int kValues = 256;
  for (int i = 0; i < kValues * kValues; ++i) {
    if (picture->Bitdepth16To8 != nullptr) {
      picture->Bitdepth16To8[i] = static_cast<uint8_t>(i / kValues);
    }
    if (picture->UaToAa != nullptr) {
      picture->UaToAa[i] = static_cast<uint8_t>(i % kValues);
    }
  }
  picture->req_orientation = picture->orientation;  // libtiff mirrors, but does not turn
  uint32_t rows = height;                           // of a strip or of tiles
  TIFFGetFieldDefaulted(file.get(), TIFFIsTiled(file.get()) != 0 ? TIFFTAG_TILELENGTH : TIFFTAG_ROWSPERSTRIP, &rows);
  rows = std::clamp<uint32_t>(rows, 1, height);
  std::vector<uint32_t> raster(size_t{rows} * width);
  image.set_size(height, width, channels);
  uint8_t* to = image.pixels.data();
  for (uint32_t y = 0; y < height; y += rows) {
    picture->row_offset = static_cast<int>(y);
    const size_t count = size_t{std::min(rows, height - y)} * width;
    check_good(TIFFRGBAImageGet(picture.get(), raster.data(), width, std::min(rows, height - y)) != 0);
    for (size_t i = 0; i < count; ++i, to += channels) {
      const uint32_t pixel = raster[i];
      put({static_cast<int>(TIFFGetR(pixel)), static_cast<int>(TIFFGetG(pixel)), static_cast<int>(TIFFGetB(pixel))},
          channels, to);
    }
  }
  image.orientation = picture->orientation;
  turn_upright(image);
}

}  // namespace norma::data
