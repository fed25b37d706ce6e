// Which requests are admitted, while files change and clients try keys.
#include "services/router/access/access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "services/base/file.h"

namespace skein::services {
namespace {

class AccessTest : public ::testing::Test {
 protected:
  AccessTest() {
    const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/" +
                               ::testing::UnitTest::GetInstance()->current_test_info()->name();
    options_.key_file = folder + ".keys";
    options_.tenants_file = folder + ".tenants";
  }
  void Write(const std::string& keys, const std::string& tenants) {
    ASSERT_TRUE(WriteFile(options_.key_file, keys).ok());
    ASSERT_TRUE(WriteFile(options_.tenants_file, tenants).ok());
  }
  static Access::Found Ask(Access* access, const std::string& key,
                           const std::string& address = "10.0.0.1") {
    return access->Admit("Bearer " + key, address);
  }

  AccessOptions options_;
};

TEST_F(AccessTest, WithoutAFileOfKeysEveryRequestIsAdmitted) {
  Access access(AccessOptions{});
  EXPECT_TRUE(access.Read().ok());
  const Access::Found found = access.Admit("", "10.0.0.1");
  EXPECT_TRUE(found.admitted);
  EXPECT_EQ(found.caller, nullptr);
}

TEST_F(AccessTest, AKeyHasWhatItsLineSaysAndElseWhatItsTenantHas) {
  Write("one tenant=a\ntwo tenant=a priority=2 ttft-ms=9 id=second\nthree\n",
        "tenants: {a: {weight: 3, priority: 1, ttft_ms: 7, tpot_ms: 8, models: [m]}, default: }");
  Access access(options_);
  ASSERT_TRUE(access.Read().ok());
  const auto one = Ask(&access, "one").caller, two = Ask(&access, "two").caller,
             three = Ask(&access, "three").caller;
  EXPECT_EQ(one->tenant, "a");
  EXPECT_EQ(one->weight, 3);
  EXPECT_EQ(one->priority, 1);
  EXPECT_EQ(one->ttft_goal_us, 7000);
  EXPECT_EQ(one->tpot_goal_us, 8000);
  EXPECT_TRUE(one->MayUse("m"));
  EXPECT_FALSE(one->MayUse("n"));
  EXPECT_EQ(two->priority, 2);
  EXPECT_EQ(two->ttft_goal_us, 9000);
  EXPECT_EQ(two->key_id, "second");
  EXPECT_EQ(three->tenant, "default");
  EXPECT_EQ(three->weight, 1);
  EXPECT_TRUE(three->MayUse("n"));
  EXPECT_EQ((*access.CallerOfTenant("a"))->weight, 3);
  EXPECT_EQ(access.KeyIds()["a"].size(), 2u);
}

TEST_F(AccessTest, TheFilesAreReadTogetherOrNotAtAll) {
  Write("one tenant=a\n", "tenants: {a: }");
  Access access(options_);
  ASSERT_TRUE(access.Read().ok());
  const struct {
    const char *keys, *tenants, *flag, *message;
  } cases[] = {
      {"two tenant=b id=k\n", "tenants: {a: }", "--api-key-file: '",
       "the key k names the tenant 'b', which --tenants-file does not have"},
      {"two id=k\n", "tenants: {a: }", "--api-key-file: '",
       "the key k names no tenant, and --tenants-file has no 'default'"},
      {"two tenant=a\n", "tenants: {a: 1}", "--tenants-file: '", "line 1: "},
      {"two three\n", "tenants: {a: }", "--api-key-file: '", "line 1: "},
  };
  for (const auto& c : cases) {
    Write(c.keys, c.tenants);
    const std::string message(access.Read().message());
    EXPECT_EQ(message.rfind(c.flag, 0), 0u) << message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
    EXPECT_TRUE(Ask(&access, "one").admitted);
    EXPECT_FALSE(Ask(&access, "two").admitted);
  }
  ::unlink(options_.key_file.c_str());
  const std::string missing(access.Read().message());
  EXPECT_NE(missing.find(options_.key_file), std::string::npos) << missing;
  EXPECT_TRUE(Ask(&access, "one").admitted);
}

TEST_F(AccessTest, ARevokedKeyIsNoneAndANewOneIsOneAfterTheFileHasChanged) {
  Write("old tenant=a\n", "tenants: {a: }");
  Access access(options_);
  ASSERT_TRUE(access.Read().ok());
  EXPECT_TRUE(Ask(&access, "old").admitted);
  ASSERT_TRUE(access.ReadIfChanged().ok());
  EXPECT_TRUE(Ask(&access, "old").admitted);
  Write("new tenant=a\n", "tenants: {a: }");
  ASSERT_TRUE(access.ReadIfChanged().ok());
  EXPECT_FALSE(Ask(&access, "old").admitted);
  EXPECT_TRUE(Ask(&access, "new").admitted);
  // A bad file is told once, and read again when it has changed.
  Write("bad line\n", "tenants: {a: }");
  EXPECT_FALSE(access.ReadIfChanged().ok());
  EXPECT_TRUE(access.ReadIfChanged().ok());
  EXPECT_TRUE(Ask(&access, "new").admitted);
  Write("new tenant=a\n", "tenants: {a: {weight: 9}}");
  ASSERT_TRUE(access.ReadIfChanged().ok());
  EXPECT_EQ(Ask(&access, "new").caller->weight, 9);
}

TEST_F(AccessTest, ATenantThatLeftTheFileIsFoundAgainWhenItIsBack) {
  Write("one tenant=a\n", "tenants: {a: , b: {weight: 2, models: [m]}}");
  Access access(options_);
  ASSERT_TRUE(access.Read().ok());
  ASSERT_TRUE(access.CallerOfTenant("b").ok());
  Write("one tenant=a\n", "tenants: {a: }");
  ASSERT_TRUE(access.Read().ok());
  const absl::Status gone = access.CallerOfTenant("b").status();
  EXPECT_TRUE(absl::IsNotFound(gone));
  EXPECT_NE(gone.message().find("the tenant 'b' is not in --tenants-file"), std::string::npos)
      << gone;
  EXPECT_TRUE(access.CallerOfTenant("").ok()) << "work of the time before there were keys";
  Write("one tenant=a\n", "tenants: {a: , b: {weight: 2, models: [m]}}");
  ASSERT_TRUE(access.Read().ok());
  EXPECT_FALSE((*access.CallerOfTenant("b"))->MayUse("n"));
}

TEST_F(AccessTest, WithoutAFileOfTenantsEachNameIsATenant) {
  Write("one tenant=a\n", "");
  options_.tenants_file.clear();
  Access access(options_);
  ASSERT_TRUE(access.Read().ok());
  EXPECT_EQ((*access.CallerOfTenant("z"))->tenant, "z");
}

TEST_F(AccessTest, WhoTriesKeysIsHeldOffAndOthersBehindTheAddressAreNot) {
  Write("right tenant=a\nother tenant=a\n", "tenants: {a: }");
  Access access(options_);
  ASSERT_TRUE(access.Read().ok());
  EXPECT_TRUE(Ask(&access, "right").admitted);
  for (int i = 0; i <= scheduler::tenants::GuessGuard::kFreeTries; ++i) {
    const Access::Found found = Ask(&access, "guess" + std::to_string(i));
    EXPECT_FALSE(found.admitted);
    EXPECT_EQ(found.held_us, 0);
  }
  EXPECT_GT(Ask(&access, "another").held_us, 0);
  const Access::Found found = Ask(&access, "other");
  EXPECT_FALSE(found.admitted) << "a guess that would be right is not looked at";
  EXPECT_GT(found.held_us, 0);
  EXPECT_TRUE(Ask(&access, "right").admitted);
  EXPECT_TRUE(Ask(&access, "other", "10.0.0.2").admitted);
  EXPECT_FALSE(access.Admit("", "10.0.0.1").admitted);
  const KeyRefusals refusals = access.refusals();
  EXPECT_EQ(refusals.wrong, 11u);
  EXPECT_EQ(refusals.held, 2u);
  EXPECT_EQ(refusals.missing, 1u);
}

TEST_F(AccessTest, ANetworkOfIPv6AddressesIsOneAddress) {
  Write("right tenant=a\n", "tenants: {a: }");
  Access access(options_);
  ASSERT_TRUE(access.Read().ok());
  for (int i = 0; i <= scheduler::tenants::GuessGuard::kFreeTries; ++i) {
    Ask(&access, "guess", "2001:db8:1:2::" + std::to_string(i + 1));
  }
  EXPECT_GT(Ask(&access, "right", "2001:db8:1:2:ffff::1").held_us, 0);
  EXPECT_EQ(Ask(&access, "right", "2001:db8:1:3::1").held_us, 0);
  EXPECT_EQ(Ask(&access, "right", "::ffff:10.0.0.1").held_us, 0);
}

}  // namespace
}  // namespace skein::services
