#pragma once

#include "data/image_kind.h"

#include <optional>
#include <string>
#include <string_view>

namespace norma::data {

/// What the header of a PNG file says; none where it has no header.
std::optional<ImageSize> png_size(std::string_view bytes);

/// The same PNG file with pixels that are not compressed. stb looks at no check sum, and it decompresses whatever there
/// is, which can be gigabytes for a few pixels: here zlib stops a little behind the bytes that the header asks for.
/// Throws Error "image: NAME: damaged: …" where the chunks do not go on to an IEND (whose own check sum may be cut
/// off), a check sum or the header is wrong, or the pixels are too few or more than their size; and std::bad_alloc.
std::string with_plain_pixels(std::string_view bytes, const std::string& name);

}  // namespace norma::data
