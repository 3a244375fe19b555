#include "base/excerpt.h"
#include "base/not_copied.h"
#include "data/image_formats.h"
#include "data/kept.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>  // before jpeglib.h, which needs it
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>

namespace norma::data {

namespace {

/// libjpeg does all the work that a file asks for, and a few bytes can ask for much of it.
/// - All scans together may decode so many blocks of 8 x 8 values. Usual scripts of scans decode each five times, so
///   even the 2^23 blocks of the largest image with four full components pass. More than 32 decodings of each block
///   pass only if all of them together take no time.
/// - If several scans make the pixels, all their values are kept until the last scan. Photographs ask for 10 to 60
///   times their file.
constexpr int64_t kMostDecodedBlocks = int64_t{1} << 26;
constexpr int64_t kMostScansOfBlock = 32;
constexpr int64_t kFewBlocks = int64_t{1} << 22;
constexpr int64_t kMostBytesOfByte = 128;
constexpr int64_t kFewBytes = int64_t{1} << 28;

/// Pixels around a window that are decoded with it: smooth upsampling reads one more number of a color, which is two
/// pixels away.
constexpr int64_t kMargin = 16;

/// Holds libjpeg's object. No exception may pass through C: its errors jump back to guarded().
class JpegReader : NotCopied {
 public:
  explicit JpegReader(std::string_view bytes) : bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = jump_back;
    errors_.emit_message = take_message;
    watch_.progress_monitor = watch;
    info_.client_data = this;
    if (!guarded([this] { jpeg_create_decompress(&info_); })) {
      throw std::bad_alloc();
    }
    info_.progress = &watch_;
    info_.mem->max_memory_to_use = std::max(kFewBytes, kMostBytesOfByte * static_cast<int64_t>(bytes.size()));
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  /// Returns the fault, or "".
  std::string read_header(int64_t channels, Image& image) {
    const bool is_good = guarded([&] {
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
      jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
      jpeg_read_header(&info_, /* require_image= */ TRUE);
      // libjpeg does not convert CMYK and its kin to colors; put_colors() does.
      info_.out_color_space = info_.num_components == 4 ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    });
    image.height = info_.image_height;
    image.width = info_.image_width;
    for (const auto* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view exif(reinterpret_cast<const char*>(marker->data), marker->data_length);
      image.orientation = exif.starts_with("Exif") ? exif_orientation(exif) : image.orientation;
    }
    return is_good ? "" : reason();
  }

  /// Decodes into the image, of the header's size. Returns the fault, or "". `image` may become a part of it that has
  /// all that is needed; `window` is then the place of the chosen window in that part.
  std::string read_pixels(int64_t channels, Image& image, const NeededPart& needed, std::optional<Rectangle>& window) {
    // The first coefficient of a block takes at least one bit.
    if (8 * static_cast<int64_t>(bytes_.size()) < (image.height + 7) / 8 * ((image.width + 7) / 8)) {
      return "it ends early";
    }
    const bool is_cmyk = info_.out_color_space == JCS_CMYK;
    bool is_whole = true;
    if (needed.enough > 0) {
      const bool lies = needed.upright && image.orientation > 4;
      const int64_t height = lies ? image.width : image.height;
      const int64_t width = lies ? image.height : image.width;
      const Rectangle whole = needed.choose ? needed.choose(height, width) : Rectangle{0, 0, height, width};
      const int64_t times = std::min(whole.height, whole.width) / needed.enough;
      info_.scale_denom = times >= 8 ? 8 : times >= 4 ? 4 : times >= 2 ? 2 : 1;
    }
    if (!guarded([&] { jpeg_start_decompress(&info_); })) {
      return reason();
    }
    image.height = info_.output_height;
    image.width = info_.output_width;
    static KeptByThread<std::vector<uint8_t>> kept;
    std::vector<uint8_t>& last_row = kept.get();
    last_row.resize(static_cast<size_t>(image.width * channels));
    std::vector<uint8_t> inks(is_cmyk ? static_cast<size_t>(4 * image.width) : 0);
    for (int c = 0; c < info_.num_components; ++c) {
      is_whole = is_whole && (jpeg_has_multiple_scans(&info_) == 0 || (seen_ >> c & 1) != 0) &&
                 (info_.progressive_mode == 0 || info_.coef_bits[c][0] >= 0);
    }
    if (!is_whole) {
      return "it ends early";
    }
    // Scans that are kept are smoothed across blocks, inks are no photographs, and lossless files have no coefficients.
    // libjpeg-turbo 2.1 cuts the wrong width from scaled colors that more than two pixels in a direction share.
    const bool is_cut_well = info_.scale_denom == 1 || std::max(info_.max_h_samp_factor, info_.max_v_samp_factor) <= 2;
    const bool is_part = needed.choose && jpeg_has_multiple_scans(&info_) == 0 && !is_cmyk && is_cut_well &&
                         image.orientation == 1 && info_.Se == DCTSIZE2 - 1;
    int64_t first_row = 0;
    if (is_part) {
      Rectangle& place = window.emplace(needed.choose(image.height, image.width));
      // libjpeg interpolates colors between pixels, but not beyond the edges of what it decodes. It begins at a block.
      const int64_t top = std::max<int64_t>(place.top - kMargin, 0);
      const int64_t bottom = std::min(place.top + place.height + kMargin, image.height);
      const int64_t left = std::max<int64_t>(place.left - kMargin, 0);
      auto first = static_cast<JDIMENSION>(left);
      auto width = static_cast<JDIMENSION>(std::min(place.left + place.width + kMargin, image.width) - left);
      if (!guarded([&] {
            jpeg_crop_scanline(&info_, &first, &width);
            jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(top));
          })) {
        return reason();
      }
      place.top -= top;
      place.left -= first;
      first_row = top;
      image.height = bottom - top;
      image.width = width;
    }
    image.set_size(image.height, image.width, channels);
    const bool is_good = guarded([&] {
      while (info_.output_scanline < first_row + image.height) {
        uint8_t* const row =
            image.pixels.data() + (int64_t{info_.output_scanline} - first_row) * image.width * channels;
        JSAMPROW to = is_cmyk ? inks.data() : row;
        jpeg_read_scanlines(&info_, &to, 1);
        if (is_cmyk) {
          put_colors(inks.data(), image.width, channels, row);
        }
      }
      if (const JDIMENSION left = info_.output_height - info_.output_scanline; left > 0) {
        // Skipped rows are read, without making their pixels, as long as one comes after them.
        jpeg_skip_scanlines(&info_, left - 1);
        JSAMPROW to = last_row.data();
        jpeg_read_scanlines(&info_, &to, 1);
      }
      jpeg_finish_decompress(&info_);
    });
    return is_good ? "" : reason();
  }

 private:
  /// Calls step(), which calls libjpeg and owns nothing. True iff it came to its end.
  template <class Step>
  bool guarded(Step&& step) {
    if (setjmp(back_) != 0) {
      return false;
    }
    step();
    return true;
  }
  [[noreturn]] static void jump_back(j_common_ptr info) {
    std::longjmp(static_cast<JpegReader*>(info->client_data)->back_, 1);
  }
  /// A warning (level -1) means damage that libjpeg works around. It counts as an error unless all pixels stay right.
  static void take_message(j_common_ptr info, int level) {
    const int code = info->err->msg_code;
    const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM ||
                          code == JWRN_NOT_SEQUENTIAL || code == JWRN_BOGUS_PROGRESSION;
    if (level < 0 && !harmless) {
      jump_back(info);
    }
  }
  /// Called many times in each scan.
  static void watch(j_common_ptr common) {
    auto& self = *static_cast<JpegReader*>(common->client_data);
    const jpeg_decompress_struct& info = self.info_;
    if (std::exchange(self.scan_, info.input_scan_number) == info.input_scan_number) {
      return;
    }
    const auto blocks_of = [](const jpeg_component_info& c) { return int64_t{c.width_in_blocks} * c.height_in_blocks; };
    int64_t blocks = 0;
    for (int c = 0; c < info.num_components; ++c) {
      blocks += blocks_of(info.comp_info[c]);
    }
    for (int c = 0; c < info.comps_in_scan; ++c) {
      self.decoded_ += blocks_of(*info.cur_comp_info[c]);
      self.seen_ |= 1U << info.cur_comp_info[c]->component_index;
    }
    self.has_many_scans_ =
        self.decoded_ > std::min(kMostDecodedBlocks, std::max(kFewBlocks, kMostScansOfBlock * blocks));
    if (self.has_many_scans_) {
      jump_back(common);
    }
  }

  /// Inks are stored inverted (Adobe's way, which all programs take for granted): 255 is the paper's white.
  static void put_colors(const uint8_t* inks, int64_t width, int64_t channels, uint8_t* to) {
    for (int64_t x = 0; x < width; ++x, inks += 4, to += channels) {
      const auto mixed = [&](int c) { return (inks[c] * inks[3] + 127) / 255; };
      put({mixed(0), mixed(1), mixed(2)}, channels, to);
    }
  }

  /// The reason of an error. Throws std::bad_alloc if it was memory.
  std::string reason() {
    if (has_many_scans_) {
      return "it has more scans than an image of its size needs";
    }
    switch (errors_.msg_code) {
      case JERR_OUT_OF_MEMORY: throw std::bad_alloc();
      case JERR_NO_BACKING_STORE:
        return fmt::format("its scans take more memory than a file of {} may ask for", byte_text(bytes_.size()));
      case JWRN_HIT_MARKER:
      case JWRN_JPEG_EOF: return "it ends early";
      default: break;
    }
    std::array<char, JMSG_LENGTH_MAX> text = {};
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), text.data());
    return text.data();
  }

  std::string_view bytes_;
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr watch_ = {};
  std::jmp_buf back_ = {};
  int scan_ = 0;
  int64_t decoded_ = 0;
  uint32_t seen_ = 0;  ///< components of scans, a bit each
  bool has_many_scans_ = false;
  jpeg_decompress_struct info_ = {};
};

}  // namespace

std::optional<Rectangle> decode_jpeg_part(std::string_view bytes, const std::string& name, int64_t channels,
                                          const NeededPart& needed, Image& image) {
  JpegReader decoder(bytes);
  std::optional<Rectangle> window;
  check_fault(decoder.read_header(channels, image), name);
  check_image_size(name, image.height, image.width);
  check_fault(decoder.read_pixels(channels, image, needed, window), name);
  return window;
}

void decode_jpeg(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  decode_jpeg_part(bytes, name, channels, {}, image);
}

}  // namespace norma::data
