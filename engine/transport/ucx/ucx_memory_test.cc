#include "engine/transport/ucx/ucx_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace skein::engine {
namespace {

// Two regions of the caller's memory.
class ScatterTest : public testing::Test {
 protected:
  ScatterTest() : first_(100), second_(50), memory_(false) {
    first_mapping_ = memory_.Map(first_.data(), first_.size())->handle;
    second_mapping_ = memory_.Map(second_.data(), second_.size())->handle;
  }

  Fragment First(uint64_t offset, uint64_t bytes) const {
    return {first_mapping_, reinterpret_cast<uint64_t>(first_.data()) + offset, bytes};
  }
  Fragment Second(uint64_t offset, uint64_t bytes) const {
    return {second_mapping_, reinterpret_cast<uint64_t>(second_.data()) + offset, bytes};
  }

  bool Scatter(const std::vector<Fragment>& fragments, const std::string& data) {
    uint64_t mark = 1;
    const bool done = memory_.Scatter(fragments, std::as_bytes(std::span(data)), &mark);
    EXPECT_EQ(mark, 0u);
    return done;
  }

  void ExpectRefused(const std::vector<Fragment>& fragments, const std::string& data) {
    const auto first = first_;
    const auto second = second_;
    EXPECT_FALSE(Scatter(fragments, data));
    EXPECT_TRUE(first_ == first && second_ == second) << "a refused put wrote";
  }

  std::vector<std::byte> first_;
  std::vector<std::byte> second_;
  UcxMemory memory_;
  uint64_t first_mapping_ = 0;
  uint64_t second_mapping_ = 0;
};

TEST_F(ScatterTest, WritesEachFragmentToItsPlace) {
  ASSERT_TRUE(Scatter({First(95, 5), Second(0, 1), First(0, 2)}, "abcdefgh"));
  EXPECT_EQ(std::memcmp(first_.data() + 95, "abcde", 5), 0);
  EXPECT_EQ(second_[0], std::byte{'f'});
  EXPECT_EQ(std::memcmp(first_.data(), "gh\0", 3), 0);
  EXPECT_TRUE(Scatter({}, ""));
}

TEST_F(ScatterTest, OneBadFragmentRefusesAll) {
  ExpectRefused({First(0, 2), First(98, 3)}, "abcde");          // over the end
  ExpectRefused({First(0, 2), First(101, 0)}, "ab");            // behind it
  ExpectRefused({First(0, 2), First(UINT64_MAX, 2)}, "abcd");   // before the start
  ExpectRefused({First(0, 2), First(10, UINT64_MAX)}, "abcd");  // longer than all memory
  ExpectRefused({First(0, 2), {first_mapping_ + 7, Second(0, 0).address, 2}}, "abcd");
  ExpectRefused({{second_mapping_, First(0, 0).address, 2}}, "ab");  // another region's place
  memory_.Unmap(second_mapping_);
  ExpectRefused({First(0, 2), Second(0, 2)}, "abcd");
}

TEST_F(ScatterTest, FragmentsMustTakeUpTheData) {
  ExpectRefused({First(0, 2), First(10, 2)}, "abc");
  ExpectRefused({First(0, 2), First(10, 2)}, "abcde");
  ExpectRefused({First(0, 2), First(10, UINT64_MAX - 1)}, "");  // their sum wraps to 0
  ExpectRefused({}, "a");
}

}  // namespace
}  // namespace skein::engine
