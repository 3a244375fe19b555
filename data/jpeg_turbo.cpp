#include "data/image_formats.h"

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>  // before jpeglib.h, which needs it
#include <new>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>

namespace norma::data {

namespace {

/// libjpeg's handler of errors. It jumps back to guarded(), since no exception may pass through C.
struct Errors {
  jpeg_error_mgr manager = {};  // first, since libjpeg gives back a pointer to it
  std::jmp_buf back = {};
};

[[noreturn]] void jump_back(j_common_ptr info) {
  std::longjmp(reinterpret_cast<Errors*>(info->err)->back, 1);
}

/// A warning (level -1) means damage that libjpeg works around. It counts as an error unless all pixels stay right.
void take_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM ||
                        code == JWRN_NOT_SEQUENTIAL || code == JWRN_BOGUS_PROGRESSION;
  if (level < 0 && !harmless) {
    jump_back(info);
  }
}

/// Calls step(), which calls libjpeg and owns nothing. True iff it came to its end.
template <class Step>
bool guarded(Errors& errors, Step&& step) {
  if (setjmp(errors.back) != 0) {
    return false;
  }
  step();
  return true;
}

/// Holds libjpeg's object.
class Decoder {
 public:
  Decoder() {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = jump_back;
    errors_.manager.emit_message = take_message;
    if (!guarded(errors_, [this] { jpeg_create_decompress(&info_); })) {
      throw std::bad_alloc();
    }
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  std::string decode(std::string_view bytes, const JpegHeader& header, int64_t channels, Image& image) {
    const bool header_is_good = guarded(errors_, [&] {
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, /* require_image= */ TRUE);
      // libjpeg does not convert CMYK and its kin to colours; put_colours() does.
      info_.out_color_space = info_.num_components == 4 ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    });
    if (!header_is_good) {
      return reason();
    }
    if (info_.image_height != header.height || info_.image_width != header.width) {
      return "it has two sizes";
    }
    const bool is_cmyk = info_.out_color_space == JCS_CMYK;
    image.set_size(header.height, header.width, channels);
    std::vector<uint8_t> inks(is_cmyk ? static_cast<size_t>(4 * header.width) : 0);
    const bool pixels_are_good = guarded(errors_, [&] {
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        uint8_t* const row = image.pixels.data() + int64_t{info_.output_scanline} * header.width * channels;
        JSAMPROW to = is_cmyk ? inks.data() : row;
        jpeg_read_scanlines(&info_, &to, 1);
        if (is_cmyk) {
          put_colours(inks.data(), header.width, channels, row);
        }
      }
      jpeg_finish_decompress(&info_);
    });
    return pixels_are_good ? "" : reason();
  }

 private:
  /// Inks are stored inverted (Adobe's way, which all programs take for granted): 255 is the paper's white.
  static void put_colours(const uint8_t* inks, int64_t width, int64_t channels, uint8_t* to) {
    for (int64_t x = 0; x < width; ++x, inks += 4, to += channels) {
      const auto mixed = [&](int c) { return (inks[c] * inks[3] + 127) / 255; };
      put({mixed(0), mixed(1), mixed(2)}, channels, to);
    }
  }

  /// libjpeg's error text. Throws std::bad_alloc if it had no memory.
  std::string reason() {
    const int code = errors_.manager.msg_code;
    if (code == JERR_OUT_OF_MEMORY) {
      throw std::bad_alloc();
    }
    if (code == JWRN_HIT_MARKER || code == JWRN_JPEG_EOF) {
      return "it ends early";
    }
    std::array<char, JMSG_LENGTH_MAX> text = {};
    errors_.manager.format_message(reinterpret_cast<j_common_ptr>(&info_), text.data());
    return text.data();
  }

  Errors errors_;
  jpeg_decompress_struct info_ = {};
};

std::string decode(std::string_view bytes, const JpegHeader& header, int64_t channels, Image& image) {
  return Decoder().decode(bytes, header, channels, image);
}

}  // namespace

const JpegDecoder kJpegTurbo{.name = "libjpeg-turbo", .decode = decode};

}  // namespace norma::data
