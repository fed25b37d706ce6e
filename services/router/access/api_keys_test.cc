// What the file of keys says.
#include "services/router/access/api_keys.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace skein::services {
namespace {

TEST(ApiKeysTest, KeysAndDigestsAreAdmittedAndNothingElse) {
  // The second is the digest of "hashed".
  const auto keys = ApiKeys::Parse(
      "# for tests\n\n  sk-plain  \r\n"
      "sha256:1a06df824ed741b53c785079a6347f00eec5af82f9850775409ca69dff4068a6\nsk-last");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->size(), 3u);
  EXPECT_TRUE(keys->Admits("sk-plain"));
  EXPECT_TRUE(keys->Admits("sk-last"));
  EXPECT_TRUE(keys->Admits("hashed"));
  for (const char* wrong : {"", "sk-plai", "sk-plain ", "SK-PLAIN", "# for tests",
                            "1a06df824ed741b53c785079a6347f00eec5af82f9850775409ca69dff4068a6"}) {
    EXPECT_FALSE(keys->Admits(wrong)) << wrong;
  }
}

TEST(ApiKeysTest, ADigestAdmitsItsKey) {
  // sha256sum of "abc", FIPS 180-4's example.
  const auto keys =
      ApiKeys::Parse("sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE(keys->Admits("abc"));
  EXPECT_FALSE(keys->Admits("abd"));
}

TEST(ApiKeysTest, AKeyMayHaveAPriority) {
  const auto keys = ApiKeys::Parse(
      "plain\nurgent  priority=-5\n"
      "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad priority=0\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->Find("plain")->priority, std::nullopt);
  EXPECT_EQ(keys->Find("urgent")->priority, -5);
  EXPECT_EQ(keys->Find("abc")->priority, 0);
  EXPECT_EQ(keys->Find("urgent priority=-5"), nullptr);
  for (const char* line : {"k prio=1", "k priority=", "k priority=x", "k priority=2147483648",
                           "k priority=-2147483648", "k priority=1 x"}) {
    const absl::Status status = ApiKeys::Parse(line).status();
    EXPECT_EQ(status.message().substr(0, 8), "line 1: ") << line << ": " << status;
    EXPECT_NE(status.message().find("priority="), absl::string_view::npos) << status;
  }
}

TEST(ApiKeysTest, AKeyHasOnePriority) {
  const std::string digest =
      "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // of "abc"
  for (const std::string& second : {std::string("abc priority=2"), std::string("abc"), digest}) {
    const absl::Status status = ApiKeys::Parse("abc priority=1\nother\n" + second).status();
    EXPECT_EQ(status.message(), "line 3: the key of line 1 with another priority") << second;
  }
  const auto same = ApiKeys::Parse("abc priority=1\n" + digest + "  priority=1\nk\nk\n");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->size(), 2u);
  EXPECT_EQ(same->Find("abc")->priority, 1);
}

TEST(ApiKeysTest, APriorityIsNotAKey) {
  for (const char* line : {"priority=3", "priority=", "priority=x", "priority=3 priority=4"}) {
    const absl::Status status = ApiKeys::Parse(std::string("key\n") + line).status();
    EXPECT_EQ(status.message(),
              "line 2: 'priority=' is behind a key and a space, and no key begins with it")
        << line;
  }
}

TEST(ApiKeysTest, BadLinesAreNamedByNumberAndNeverShown) {
  const auto keys = ApiKeys::Parse("good\nsecret with space\nsha256:secret12\n");
  ASSERT_FALSE(keys.ok());
  const std::string message(keys.status().message());
  EXPECT_NE(message.find("line 2: "), std::string::npos) << message;
  EXPECT_NE(message.find("line 3: "), std::string::npos) << message;
  EXPECT_EQ(message.find("line 1: "), std::string::npos) << message;
  EXPECT_EQ(message.find("secret"), std::string::npos) << message;
  EXPECT_EQ(ApiKeys::Parse("# nothing\n\n").status().message(), "the file has no keys");
}

TEST(ApiKeysTest, TheSchemeIsBearerInAnyCase) {
  EXPECT_EQ(BearerOf("Bearer k"), "k");
  EXPECT_EQ(BearerOf("bearer  k "), "k");
  for (const char* other : {"", "k", "Basic k", "Bearer"}) EXPECT_EQ(BearerOf(other), "") << other;
}

TEST(ApiKeysTest, AKeyMayHaveATenantANameAndGoals) {
  const auto keys = ApiKeys::Parse(
      "one tenant=search id=search-1  ttft-ms=500 tpot-ms=20 priority=3\n"
      "two tenant=a.b_c-9\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  ApiKeys::Grant wanted;
  wanted.tenant = "search";
  wanted.id = "search-1";
  wanted.ttft_goal_us = 500'000;
  wanted.tpot_goal_us = 20'000;
  wanted.priority = 3;
  EXPECT_EQ(*keys->Find("one"), wanted);
  EXPECT_EQ(keys->Find("two")->tenant, "a.b_c-9");
  EXPECT_EQ(keys->Find("two")->id, "3fc4ccfe7458") << "the first digits of sha256(two)";
  for (const char* line :
       {"k tenant=", "k tenant=a/b", "k tenant=-a", "k id=a b", "k ttft-ms=0", "k ttft-ms=1.5",
        "k tpot-ms=86400001", "k tenant=a tenant=a", "k tenant", "k weight=2"}) {
    const absl::Status status = ApiKeys::Parse(line).status();
    EXPECT_EQ(status.message().substr(0, 8), "line 1: ") << line << ": " << status;
  }
  EXPECT_EQ(ApiKeys::Parse("k tenant=a\nk tenant=b").status().message(),
            "line 2: the key of line 1 with another tenant");
  EXPECT_EQ(ApiKeys::Parse("j id=a\nk id=a").status().message(), "line 2: the id of line 1");
}

TEST(ApiKeysTest, ALineThatIsMadeOfAKeyAdmitsIt) {
  EXPECT_EQ(KeyLine("abc"),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const auto keys = ApiKeys::Parse(KeyLine("sk-x") + " tenant=t");
  ASSERT_TRUE(keys.ok());
  EXPECT_TRUE(keys->Admits("sk-x"));
}

}  // namespace
}  // namespace skein::services
