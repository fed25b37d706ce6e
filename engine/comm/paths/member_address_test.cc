#include "engine/comm/paths/member_address.h"

#include <gtest/gtest.h>

#include <string>

namespace skein::engine {
namespace {

MemberAddress Whole() {
  MemberAddress address;
  address.member = {.gpu = "GPU-1",
                    .realm = "boot/pid:[1]",
                    .reaches = {"GPU-2", "GPU-3"},
                    .nccl_version = 22809,
                    .wants = CommPath::kNccl};
  address.host = std::string("of\0the host", 11);
  return address;
}

void ExpectSame(const MemberAddress& a, const MemberAddress& b) {
  EXPECT_EQ(a.member.gpu, b.member.gpu);
  EXPECT_EQ(a.member.realm, b.member.realm);
  EXPECT_EQ(a.member.reaches, b.member.reaches);
  EXPECT_EQ(a.member.nccl_version, b.member.nccl_version);
  EXPECT_EQ(a.member.wants, b.member.wants);
  EXPECT_EQ(a.host, b.host);
}

TEST(MemberAddress, ComesBack) {
  const MemberAddress host{{}, "host"};
  for (const MemberAddress& address : {Whole(), host}) {
    const auto opened = OpenMember(SealMember(address));
    ASSERT_TRUE(opened.has_value());
    ExpectSame(*opened, address);
  }
}

TEST(MemberAddress, TornOnesAreRefused) {
  const std::string sealed = SealMember(Whole());
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string torn = sealed;
    torn[i] ^= 1;
    EXPECT_FALSE(OpenMember(torn).has_value()) << i;
    EXPECT_FALSE(OpenMember(sealed.substr(0, i)).has_value()) << i;
  }
  EXPECT_FALSE(OpenMember(sealed + "x").has_value());
}

}  // namespace
}  // namespace skein::engine
