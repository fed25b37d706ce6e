#include "engine/host/shared_region.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "engine/host/process_watch.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kBytes = 100000;

TEST(SharedRegionTest, AnotherProcessReadsAndWritesIt) {
  const auto region = SharedRegion::Allocate(kBytes);
  ASSERT_TRUE(region != nullptr);
  EXPECT_EQ(region->base()[kBytes - 1], std::byte{0});
  std::memcpy(region->base() + kBytes - 5, "here", 5);
  const std::string process = ThisProcess(), name = region->name();
  const pid_t child = fork();
  if (child == 0) {
    const auto mapped = SharedRegion::Map(process, name, kBytes);
    SKEIN_CHECK(mapped != nullptr);
    SKEIN_CHECK(std::memcmp(mapped->base() + kBytes - 5, "here", 5) == 0);
    std::memcpy(mapped->base(), "there", 6);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(region->base()), "there");
}

TEST(SharedRegionTest, OutlivesItsMaker) {
  auto region = SharedRegion::Allocate(kBytes);
  ASSERT_TRUE(region != nullptr);
  const std::string name = region->name();
  const auto mapped = SharedRegion::Map(ThisProcess(), name, kBytes);
  ASSERT_TRUE(mapped != nullptr);
  region.reset();
  mapped->base()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(SharedRegion::Map(ThisProcess(), name, kBytes), nullptr);
}

TEST(SharedRegionTest, MapsOnlyWhatIsMeant) {
  const auto region = SharedRegion::Allocate(kBytes);
  ASSERT_TRUE(region != nullptr);
  const std::string process = ThisProcess(), name = region->name();
  EXPECT_EQ(SharedRegion::Map("", name, kBytes), nullptr);
  EXPECT_EQ(SharedRegion::Map("another-host/pid:[1] 1 1", name, kBytes), nullptr);
  EXPECT_EQ(SharedRegion::Map(process, "", kBytes), nullptr);
  EXPECT_EQ(SharedRegion::Map(process, name + "0", kBytes), nullptr);
  EXPECT_EQ(SharedRegion::Map(process, "0 0", kBytes), nullptr);
  EXPECT_EQ(SharedRegion::Map(process, name, kBytes + 1), nullptr);
}

}  // namespace
}  // namespace skein::engine
