// What headers and the key file say.
#include "services/router/api/identity.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "services/base/file.h"
#include "services/router/api/api_keys.h"

namespace skein::services {
namespace {

using http::Header;

struct Case {
  std::vector<Header> headers;
  std::string session, tenant, priority;
};

TEST(HintsTest, ThePeersHeadersAreAliases) {
  const std::vector<Case> cases = {
      {{}, "", "", ""},
      {{{"X-Session-ID", "s"}}, "s", "", ""},
      {{{"X-Dynamo-Session-ID", "s"}}, "s", "", ""},
      {{{"x-claude-code-session-id", "s"}}, "s", "", ""},
      {{{"session-id", "s"}}, "s", "", ""},
      {{{"X-Session-Affinity", "s"}}, "s", "", ""},
      {{{"x-session-token", "s"}}, "s", "", ""},
      {{{"X-SMG-Routing-Key", "s"}}, "s", "", ""},
      {{{"session-id", "second"}, {"x-session-id", "first"}}, "first", "", ""},
      {{{"x-session-id", "not plain"}, {"session-id", "s"}}, "s", "", ""},
      {{{"x-llm-d-inference-fairness-id", "t"}}, "", "t", ""},
      {{{"x-smg-tenant-id", "t"}}, "", "t", ""},
      {{{"x-dynamo-request-priority", "-3"}}, "", "", "x-dynamo-request-priority: -3"},
      {{{"x-llm-d-inference-objective", "batch"}}, "", "", "x-llm-d-inference-objective: batch"},
      {{{"X-SMG-Priority", "Bulk"}}, "", "", "x-smg-priority: Bulk"},
  };
  for (const Case& c : cases) {
    ClientHints hints;
    ASSERT_FALSE(ReadHints(c.headers, &hints).has_value());
    const std::string name = c.headers.empty() ? "none" : c.headers[0].name;
    EXPECT_EQ(hints.session, c.session) << name;
    EXPECT_EQ(hints.tenant, c.tenant) << name;
    EXPECT_EQ(hints.priority, c.priority) << name;
  }
}

TEST(HintsTest, APriorityThatIsNoneIsRefusedByName) {
  for (const Header& header : {Header{"X-Dynamo-Request-Priority", "high"},
                               Header{"x-dynamo-request-priority", "2147483648"},
                               Header{"x-dynamo-request-strict-priority", "1.5"},
                               Header{"x-llm-d-inference-objective", "two words"}}) {
    ClientHints hints;
    const openai::MaybeError error = ReadHints({header}, &hints);
    ASSERT_TRUE(error.has_value()) << header.value;
    EXPECT_EQ(error->status, 400);
    EXPECT_FALSE(error->param.empty());
    EXPECT_NE(error->message.find(error->param), std::string::npos);
  }
}

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

TEST(ApiKeyFileTest, IsReadAnewAndABadFileChangesNothing) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/keys";
  EXPECT_TRUE(ApiKeyFile("").Admits("anything"));
  ApiKeyFile keys(path);
  const absl::Status missing = keys.Read();
  EXPECT_NE(missing.message().find(path), std::string::npos) << missing;
  EXPECT_FALSE(keys.Admits("one"));
  ASSERT_TRUE(WriteFile(path, "one\n").ok());
  ASSERT_TRUE(keys.Read().ok());
  EXPECT_TRUE(keys.Admits("one"));
  ASSERT_TRUE(WriteFile(path, "two\nbad line\n").ok());
  EXPECT_NE(keys.Read().message().find("line 2"), std::string::npos);
  EXPECT_TRUE(keys.Admits("one"));
  EXPECT_FALSE(keys.Admits("two"));
  ASSERT_TRUE(WriteFile(path, "two\n").ok());
  ASSERT_TRUE(keys.Read().ok());
  EXPECT_FALSE(keys.Admits("one"));
  EXPECT_TRUE(keys.Admits("two"));
}

TEST(Identity, ASessionIsAKeyThatAllRoutersAgreeOn) {
  EXPECT_EQ(AffinityOf({}), 0u);
  EXPECT_EQ(AffinityOf({.tenant = "t"}), 0u);
  EXPECT_EQ(AffinityOf({.session = "a"}), 0xaf63dc4c8601ec8cu) << "FNV-1a of 'a'";
  EXPECT_NE(AffinityOf({.session = "a"}), AffinityOf({.session = "b"}));
}

}  // namespace
}  // namespace skein::services
