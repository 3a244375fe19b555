#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

// mov, with the forms that split a value into parts and join parts.

namespace virtual_gpu {

namespace {

template <class T>
void move(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<T>* a = warp.in<T>(i.operands[1]);
  write_lanes<T>(warp.out<T>(i.operands[0]), mask, [&](int lane) { return static_cast<T>(a[lane]); });
}

void move_predicate(Warp& warp, const Instruction& i, uint32_t mask) {
  warp.set_predicate(i.operands[0], warp.predicate(i.operands[1]), mask);
}

template <class Part, class Whole, int kParts>
void split(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<Whole>* a = warp.in<Whole>(i.operands[kParts]);
  for (int part = 0; part < kParts; ++part) {
    write_lanes<Part>(warp.out<Part>(i.operands[static_cast<size_t>(part)]), mask, [&](int lane) {
      return static_cast<Part>(a[lane] >> (8 * sizeof(Part) * static_cast<size_t>(part)));
    });
  }
}

template <class Part, class Whole, int kParts>
void join(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<Part>* parts[kParts];
  for (size_t part = 0; part < kParts; ++part) {
    parts[part] = warp.in<Part>(i.operands[1 + part]);
  }
  write_lanes<Whole>(warp.out<Whole>(i.operands[0]), mask, [&](int lane) {
    Whole whole = 0;
    for (size_t part = 0; part < kParts; ++part) {
      whole = static_cast<Whole>(whole | static_cast<Whole>(Whole{parts[part][lane]} << (8 * sizeof(Part) * part)));
    }
    return whole;
  });
}

}  // namespace

Choice move_choice(const Opcode& opcode) {
  if (opcode.name != "mov" && opcode.name != "cvta") {
    return {};
  }
  switch (bytes_of(opcode.type())) {
    case 0: return {move_predicate, {0, 0}};
    case 2: return {move<uint16_t>, {2, 2}};
    case 4: return {move<uint32_t>, {4, 4}};
    case 8: return {move<uint64_t>, {8, 8}};
    default: return {};
  }
}

Choice split_choice(int part_bytes, int parts) {
  Choice choice;
  if (part_bytes == 4 && parts == 2) {
    choice = {split<uint32_t, uint64_t, 2>, {4, 4, 8}};
  } else if (part_bytes == 2 && parts == 2) {
    choice = {split<uint16_t, uint32_t, 2>, {2, 2, 4}};
  } else if (part_bytes == 2 && parts == 4) {
    choice = {split<uint16_t, uint64_t, 4>, {2, 2, 2, 2, 8}};
  }
  choice.outputs = parts;
  return choice;
}

Choice join_choice(int part_bytes, int parts) {
  if (part_bytes == 4 && parts == 2) {
    return {join<uint32_t, uint64_t, 2>, {8, 4, 4}};
  }
  if (part_bytes == 2 && parts == 2) {
    return {join<uint16_t, uint32_t, 2>, {4, 2, 2}};
  }
  if (part_bytes == 2 && parts == 4) {
    return {join<uint16_t, uint64_t, 4>, {8, 2, 2, 2, 2}};
  }
  return {};
}

}  // namespace virtual_gpu
