#pragma once

#include "data/image_kind.h"

#include <optional>
#include <string>
#include <string_view>

namespace norma::data {

/// What the first frame of a JPEG file says; none where the file has no frame.
std::optional<ImageSize> jpeg_size(std::string_view bytes);

/// What is wrong with a JPEG file, as far as its segments show it, or "". Decoders make up what a file lacks and do all
/// the work that it asks for, so that this is asked before any of them:
/// - it does not come to its end-of-image marker, a component has no scan, or a scan is shorter than the fewest bits
///   that so many blocks of pixels take: "it ends early";
/// - its scans decode so many blocks that a few kilobytes would take minutes:
///   "it has more scans than an image of its size needs";
/// - several scans make its pixels, which decoders keep in memory meanwhile, and that takes more than 256 MiB and than
///   128 times the file: "its scans take 768 MiB of memory, which a file of 768.1 KiB may not ask for";
/// - its Huffman tables are damaged or missing (stb writes and reads behind the ends of its own then);
/// - it is of a kind that is not read: lossless, arithmetic, of more than 8 bits, of two components.
std::string fault_of_jpeg(std::string_view bytes);

}  // namespace norma::data
