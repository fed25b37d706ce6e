// What a later version may do with proto/, and what breaks its peers.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/compatibility/proto_listing.h"

namespace skein::compatibility {
namespace {

constexpr char kReleased[] = R"(# a comment
message M
field M 1 id uint64 singular
field M 2 name string singular oneof:what
field M 3 old uint32 repeated deprecated
reserved M 4
enum E
value E 0 NONE
value E 1 ONE
value E 2 OLD deprecated
service S
rpc S Ask M stream:M
message Old deprecated
field Old 1 id uint64 singular
)";

// `kReleased` with every `from` replaced by `to`.
std::string With(const std::string& from, const std::string& to) {
  std::string text = kReleased;
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

using Broken = std::vector<std::string>;

TEST(BrokenByTest, WhatIsNewBreaksNothing) {
  EXPECT_EQ(BrokenBy(kReleased, kReleased), Broken());
  EXPECT_EQ(BrokenBy(With("enum E\n",
                          "field M 5 more bytes optional\nmessage N\nenum E\n"
                          "value E 3 TWO\nrpc S Tell M M\n"),
                     kReleased),
            Broken());
}

TEST(BrokenByTest, NothingChangesItsNameTypeOrCardinality) {
  EXPECT_EQ(BrokenBy(With("1 id uint64 singular", "1 ids uint64 singular"), kReleased).size(), 2u);
  EXPECT_EQ(BrokenBy(With("M 1 id uint64 singular", "M 1 id string singular"), kReleased),
            Broken{"field M 1: was 'id uint64 singular', is 'id string singular'; leave it, and "
                   "add another under a new number or name"});
  for (const char* changed : {"M 1 id uint64 optional", "M 1 id uint64 repeated"}) {
    EXPECT_EQ(BrokenBy(With("M 1 id uint64 singular", changed), kReleased).size(), 1u) << changed;
  }
  EXPECT_EQ(BrokenBy(With(" oneof:what", ""), kReleased).size(), 1u);
  EXPECT_EQ(BrokenBy(With("1 ONE", "1 UNO"), kReleased).size(), 1u);
  EXPECT_EQ(BrokenBy(With("Ask M stream:M", "Ask M M"), kReleased).size(), 1u);
}

TEST(BrokenByTest, AFieldThatMovesToAnotherNumberIsGone) {
  EXPECT_EQ(BrokenBy(With("M 1 id", "M 9 id"), kReleased),
            Broken{"field M 1 (id uint64 singular): is gone, but the release did not have it as "
                   "deprecated; keep it for one minor version with [deprecated = true]"});
}

TEST(BrokenByTest, WhatWasNotDeprecatedStaysEvenIfItsNumberIsReserved) {
  EXPECT_EQ(BrokenBy(With("field M 1 id uint64 singular", "reserved M 1"), kReleased).size(), 1u);
  EXPECT_EQ(BrokenBy(With("value E 1 ONE", "reserved-value E 1"), kReleased).size(), 1u);
  EXPECT_EQ(BrokenBy(With("rpc S Ask M stream:M\n", ""), kReleased).size(), 1u);
  EXPECT_EQ(BrokenBy(With("service S\nrpc S Ask M stream:M\n", ""), kReleased).size(), 1u);
}

TEST(BrokenByTest, WhatWasDeprecatedMayGoAndLeavesItsNumberReserved) {
  EXPECT_EQ(BrokenBy(With("field M 3 old uint32 repeated deprecated", "reserved M 3"), kReleased),
            Broken());
  EXPECT_EQ(BrokenBy(With("field M 3 old uint32 repeated deprecated\n", ""), kReleased),
            Broken{"field M 3 (old uint32 repeated): is gone; write 'reserved M 3' in its place, "
                   "so that its number is never used again"});
  EXPECT_EQ(BrokenBy(With("value E 2 OLD deprecated", "reserved-value E 2"), kReleased), Broken());
  EXPECT_EQ(BrokenBy(With("value E 2 OLD deprecated\n", ""), kReleased).size(), 1u);
  EXPECT_EQ(
      BrokenBy(With("message Old deprecated\nfield Old 1 id uint64 singular\n", ""), kReleased),
      Broken());
}

TEST(BrokenByTest, ANumberIsNeverUsedAgain) {
  EXPECT_EQ(BrokenBy(With("reserved M 4", "field M 4 new bytes singular"), kReleased),
            Broken{"reserved M 4: is not reserved any more; a number is never used again"});
}

TEST(BrokenByTest, ADeprecationIsNoChangeAndMayBeTakenBack) {
  EXPECT_EQ(BrokenBy(With("1 id uint64 singular", "1 id uint64 singular deprecated"), kReleased),
            Broken());
  EXPECT_EQ(BrokenBy(With("repeated deprecated", "repeated"), kReleased), Broken());
}

}  // namespace
}  // namespace skein::compatibility
