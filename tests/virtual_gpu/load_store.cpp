#include "virtual_gpu/access.h"
#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

#include <cstring>

// ld and st: the way between memory and registers, once an access is found to be right.

namespace virtual_gpu {

namespace {

template <class Element>
Element element_at(const std::byte* at) {
  Element element;
  std::memcpy(&element, at, sizeof element);
  return element;
}

/// The bytes of element `part` that were never written, for lanes whose access was written in part.
Undefined::Bytes unwritten_bytes(const Instruction& i, const Access& access, size_t part) {
  Undefined::Bytes bytes = {};
  for_lanes(access.partial, [&](int lane) {
    for (size_t byte = 0; byte < i.element_bytes; ++byte) {
      const bool written = access.written[static_cast<size_t>(lane)][part * i.element_bytes + byte] != 0;
      bytes[static_cast<size_t>(lane)] |= static_cast<uint8_t>(written ? 0 : 1U << byte);
    }
  });
  return bytes;
}

/// Marks what was loaded of bytes that were never written.
void load_undefined(Warp& warp, const Instruction& i, uint32_t mask, const Access& access) {
  for (size_t part = 0; part < i.outputs; ++part) {
    warp.undefined.set(i.operands[part], mask, unwritten_bytes(i, access, part), i.index);
  }
}

/// What is stored of undefined bytes counts as never written.
void store_undefined(Warp& warp, const Instruction& i, uint32_t mask, const Access& access) {
  for (size_t part = 0; part + 1 < i.operand_count; ++part) {
    const Undefined::Bytes bytes = warp.undefined.of(i.operands[1 + part]);
    for_lanes(mask, [&](int lane) {
      for (size_t byte = 0; byte < i.element_bytes; ++byte) {
        if (((bytes[static_cast<size_t>(lane)] >> byte) & 1U) != 0 &&
            access.written[static_cast<size_t>(lane)] != nullptr) {
          access.written[static_cast<size_t>(lane)][part * i.element_bytes + byte] = 0;
        }
      }
    });
  }
}

/// A register is wider than an element where a narrow type is loaded; its sign goes into the upper bits.
template <class Element, class Register, int kVector>
void load(Warp& warp, const Instruction& i, uint32_t mask) {
  Access access;
  find_memory(warp, i, mask, i.operands[kVector], false, access);
  if (access.partial != 0 || !warp.undefined.empty()) {
    load_undefined(warp, i, mask, access);
  }
  if constexpr (kVector == 1) {
    Alias<Register>* to = warp.out<Register>(i.operands[0]);
    if (access.consecutive) {
      const std::byte* from = access.at[0];
      VIRTUAL_GPU_LANES {
        to[lane] = static_cast<Register>(element_at<Element>(from + sizeof(Element) * static_cast<size_t>(lane)));
      }
      return;
    }
    for_lanes(mask, [&](int lane) {
      to[lane] = static_cast<Register>(element_at<Element>(access.at[static_cast<size_t>(lane)]));
    });
  } else {
    for (size_t part = 0; part < kVector; ++part) {
      Alias<Register>* to = warp.out<Register>(i.operands[part]);
      for_lanes(mask, [&](int lane) {
        to[lane] =
            static_cast<Register>(element_at<Element>(access.at[static_cast<size_t>(lane)] + sizeof(Element) * part));
      });
    }
  }
}

template <class Element, class Register, int kVector>
void store(Warp& warp, const Instruction& i, uint32_t mask) {
  Access access;
  access.written.fill(nullptr);  // a module's variables have no record
  find_memory(warp, i, mask, i.operands[0], true, access);
  if (!warp.undefined.empty()) {
    store_undefined(warp, i, mask, access);
  }
  if constexpr (kVector == 1) {
    if (access.consecutive) {
      const Alias<Register>* from = warp.in<Register>(i.operands[1]);
      std::byte* const to = access.at[0];
      VIRTUAL_GPU_LANES {
        const Element element = static_cast<Element>(from[lane]);
        std::memcpy(to + sizeof(Element) * static_cast<size_t>(lane), &element, sizeof element);
      }
      return;
    }
  }
  for (size_t part = 0; part < kVector; ++part) {
    const Alias<Register>* from = warp.in<Register>(i.operands[1 + part]);
    for_lanes(mask, [&](int lane) {
      const Element element = static_cast<Element>(from[lane]);
      std::memcpy(access.at[static_cast<size_t>(lane)] + sizeof(Element) * part, &element, sizeof element);
    });
  }
}

template <class Element, class Register>
Handler pick(bool stores, int vector) {
  switch (vector) {
    case 1: return stores ? store<Element, Register, 1> : load<Element, Register, 1>;
    case 2: return stores ? store<Element, Register, 2> : load<Element, Register, 2>;
    case 4: return stores ? store<Element, Register, 4> : load<Element, Register, 4>;
    default: return nullptr;
  }
}

template <class Element>
Handler pick(bool stores, int register_bytes, int vector) {
  switch (register_bytes) {
    case 2:
      if constexpr (sizeof(Element) <= 2) {
        return pick<Element, uint16_t>(stores, vector);
      }
      return nullptr;
    case 4:
      if constexpr (sizeof(Element) <= 4) {
        return pick<Element, uint32_t>(stores, vector);
      }
      return nullptr;
    case 8: return pick<Element, uint64_t>(stores, vector);
    default: return nullptr;
  }
}

Handler pick(bool stores, Type type, int register_bytes, int vector) {
  switch (type) {
    case Type::kS8: return pick<int8_t>(stores, register_bytes, vector);
    case Type::kS16: return pick<int16_t>(stores, register_bytes, vector);
    case Type::kS32: return pick<int32_t>(stores, register_bytes, vector);
    case Type::kS64: return pick<int64_t>(stores, register_bytes, vector);
    default: break;
  }
  switch (bytes_of(type)) {
    case 1: return pick<uint8_t>(stores, register_bytes, vector);
    case 2: return pick<uint16_t>(stores, register_bytes, vector);
    case 4: return pick<uint32_t>(stores, register_bytes, vector);
    case 8: return pick<uint64_t>(stores, register_bytes, vector);
    default: return nullptr;
  }
}

}  // namespace

Handler load_handler(Type type, int register_bytes, int vector) {
  return pick(false, type, register_bytes, vector);
}

Handler store_handler(Type type, int register_bytes, int vector) {
  return pick(true, type, register_bytes, vector);
}

}  // namespace virtual_gpu
