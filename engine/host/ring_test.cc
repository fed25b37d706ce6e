#include "engine/host/ring.h"

#include <sys/stat.h>

#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kKib = 1 << 10;

Ring Make() {
  auto ring = Ring::Make();
  SKEIN_CHECK(ring.ok());
  return *std::move(ring);
}

Ring Open(const Ring& writer) {
  auto ring = Ring::Open(writer.fd());
  SKEIN_CHECK(ring.ok());
  return *std::move(ring);
}

bool Write(Ring* ring, const std::string& message) {
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(message))};
  return ring->Write(parts);
}

// Empty: there is none.
std::string Read(Ring* ring) {
  const auto front = ring->Front();
  if (!front.has_value()) return "";
  std::string message(reinterpret_cast<const char*>(front->data()), front->size());
  ring->Pop();
  return message;
}

size_t HeldBytes(const Ring& ring) {
  struct stat file {};
  SKEIN_CHECK(fstat(ring.fd(), &file) == 0);
  return static_cast<size_t>(file.st_blocks) * 512;
}

TEST(Ring, HoldsLittleMemoryForMessagesThatWereRead) {
  Ring writer = Make();
  Ring reader = Open(writer);
  // Round after round, a few messages at a time, as where processes rarely have news.
  for (size_t written = 0; written < 70 * kKib; written += 2 * kKib) {
    ASSERT_TRUE(Write(&writer, std::string(2 * kKib - 8, 'a')));
    ASSERT_EQ(Read(&reader).size(), 2 * kKib - 8);
  }
  EXPECT_LE(HeldBytes(writer), 16 * kKib) << "70 KiB went through it";
  for (size_t written = 0; written < 3 * kRingBytes; written += 64 * kKib) {
    ASSERT_TRUE(Write(&writer, std::string(64 * kKib - 8, 'b')));
    ASSERT_EQ(Read(&reader).size(), 64 * kKib - 8);
    writer.GiveBack();
    EXPECT_LE(HeldBytes(writer), 132 * kKib);
  }
}

TEST(Ring, WhatIsNotReadStaysWhenMemoryIsGivenBack) {
  Ring writer = Make();
  Ring reader = Open(writer);
  std::mt19937 random(7);
  uint64_t sent = 0, got = 0;
  const auto message = [](uint64_t number) {
    return std::string(1 + number * 7919 % (90 * kKib), static_cast<char>('a' + number % 26));
  };
  while (got < 2000) {
    if (random() % 2 == 0) {
      sent += Write(&writer, message(sent)) ? 1 : 0;
      if (random() % 4 == 0) writer.GiveBack();
    } else if (got < sent) {
      ASSERT_EQ(Read(&reader), message(got)) << got;
      ++got;
    } else {
      ASSERT_EQ(Read(&reader), "");
    }
  }
}

}  // namespace
}  // namespace skein::engine
