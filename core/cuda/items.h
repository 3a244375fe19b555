#pragma once

#include "core/cuda/number.h"

#include <cstring>
#include <vector>

// One launch serves many tensors: those of optimizers and of copies_of_many.h. Their addresses and numbers lie in a
// list in the device's memory; each block takes a piece of one tensor.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kItemThreads = 256;
/// Elements of a piece.
inline constexpr int64_t kPiece = 4096;

/// The list as kernels see it. An item has `count`, the number of its elements. An item without elements has no piece.
template <class Item>
struct ItemList {
  int count = 0;
  const int64_t* first_piece = nullptr;  ///< of each item, and the number of all pieces after them
  const Item* items = nullptr;
  const double* guard = nullptr;  ///< two numbers; unless both are finite, change_items() changes nothing; null: none

  [[nodiscard]] NORMA_DEVICE bool allows_changes() const {
    return guard == nullptr || (guard[0] - guard[0] == 0 && guard[1] - guard[1] == 0);  // Inf - Inf is NaN
  }

  /// The item that a piece belongs to: the last one whose first piece is not after it.
  NORMA_DEVICE int item_of(int64_t piece) const {
    int low = 0;
    int high = count;  // first_piece[low] <= piece < first_piece[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_piece[middle] <= piece) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

/// Owns a list's memory. The kernels of the stream that are launched in its life may use it.
template <class Item>
class DeviceItems {
 public:
  explicit DeviceItems(const std::vector<Item>& items)
      : count_(static_cast<int>(items.size())),
        memory_(static_cast<int64_t>(bytes_of_pieces() + items.size() * sizeof(Item))) {
    std::vector<std::byte> host(bytes_of_pieces() + items.size() * sizeof(Item));
    for (size_t i = 0; i <= items.size(); ++i) {
      std::memcpy(host.data() + i * sizeof(int64_t), &pieces_, sizeof(int64_t));
      pieces_ += i < items.size() ? ceil_div(items[i].count, kPiece) : 0;
    }
    std::memcpy(host.data() + bytes_of_pieces(), items.data(), items.size() * sizeof(Item));
    device_functions.table("items", this_device()).from_host(memory_.data(), host.data(), host.size());
  }

  [[nodiscard]] int64_t pieces() const { return pieces_; }
  [[nodiscard]] ItemList<Item> list() const {
    return {.count = count_,
            .first_piece = reinterpret_cast<const int64_t*>(memory_.data()),
            .items = reinterpret_cast<const Item*>(memory_.data() + bytes_of_pieces())};
  }

 private:
  /// The items lie after the numbers of their pieces, aligned to 16 bytes.
  [[nodiscard]] size_t bytes_of_pieces() const { return ceil_div(count_ + 1, 2) * 2 * sizeof(int64_t); }

  int count_;
  int64_t pieces_ = 0;
  DeviceBuffer<std::byte> memory_;
};

/// Calls item.change<n>(i), which changes the elements i to i + n - 1 of the item, for all elements of all items; n is
/// `width`, and 1 for elements that fill no vector. An item may have read_numbers(), which is called before.
template <int width, class Item>
NORMA_KERNEL void change_items(ItemList<Item> list) {
  if (!list.allows_changes()) {
    return;
  }
  const int which = list.item_of(block());
  Item item = list.items[which];
  if constexpr (requires { item.read_numbers(); }) {
    item.read_numbers();
  }
  const int64_t first = (block() - list.first_piece[which]) * kPiece;
  const int64_t last = first + kPiece < item.count ? first + kPiece : item.count;
  const int64_t vectors_end = last - (last - first) % width;
  for (int64_t i = first + thread() * width; i < vectors_end; i += threads() * width) {
    item.template change<width>(i);
  }
  if constexpr (width > 1) {
    for (int64_t i = vectors_end + thread(); i < last; i += threads()) {
      item.template change<1>(i);
    }
  }
}

/// Changes all items, those whose arrays all begin at whole vectors by vectors of `width`. `guard`: of ItemList.
template <int width, class Item>
void change_all(const std::vector<Item>& items, const double* guard = nullptr) {
  std::vector<Item> aligned;
  std::vector<Item> others;
  for (const Item& item : items) {
    if (item.count > 0) {
      (item.is_aligned() ? aligned : others).push_back(item);
    }
  }
  const auto launch_on = [guard](const std::vector<Item>& some, void (*kernel)(ItemList<Item>)) {
    if (!some.empty()) {
      const DeviceItems<Item> memory(some);
      ItemList<Item> list = memory.list();
      list.guard = guard;
      launch(memory.pieces(), kItemThreads, 0, current_stream(), kernel, list);
    }
  };
  launch_on(aligned, change_items<width, Item>);
  launch_on(others, change_items<1, Item>);
}

}  // namespace norma::kernels::NORMA_BACKEND
