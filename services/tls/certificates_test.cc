#include "services/tls/certificates.h"

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "services/base/file.h"
#include "services/tls/security.h"
#include "services/tls/testing/authority.h"

namespace skein::services::tls {
namespace {

using testing::Authority;
using testing::RoleName;
using testing::TestFolder;

int64_t Now() { return std::time(nullptr); }

std::string ErrorOf(const std::string& folder, Needs needs = Needs::kIdentity) {
  return std::string(ReadTlsFiles(folder, needs, Now()).status().message());
}

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(TlsFiles, NamesRolesOfUrisAndDnsNames) {
  const Authority authority;
  const std::string folder = TestFolder("names");
  authority.Issue(folder, {.names = {RoleName("router"), "DNS:operator.skein.internal",
                                     "DNS:orchestrator.example.org"}});
  const auto files = ReadTlsFiles(folder, Needs::kIdentity, Now());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->trust_domain, "test");
  EXPECT_EQ(files->roles, (RoleSet{Role::kRouter, Role::kOperator}));
  EXPECT_GT(files->expires_s, Now());
}

TEST(Roles, CountOnlyInTheOwnTrustDomain) {
  const SubjectNames names{.uris = {"spiffe://other/skein/router", "https://test/skein/router",
                                    "spiffe://test/skein/router/x", "spiffe:///skein/router"},
                           .dns = {"router.skein.internal.evil.org", ".skein.internal"}};
  EXPECT_TRUE(RolesOf(names, "test").empty());
  EXPECT_EQ(RolesOf(names, "other"), RoleSet{Role::kRouter});
  EXPECT_EQ(RolesOf(names, ""), RoleSet{Role::kRouter});
}

TEST(TlsFiles, AnErrorNamesFileAndReason) {
  const Authority authority;
  const std::string folder = TestFolder("errors");
  EXPECT_EQ(ErrorOf(folder), folder + "/ca.crt: cannot be read");
  authority.Publish(folder);
  EXPECT_EQ(ErrorOf(folder), folder + "/tls.crt: cannot be read");
  EXPECT_EQ(ErrorOf(folder, Needs::kAuthority), "");
  authority.Issue(folder, {.ends_in_s = -1});
  EXPECT_NE(ErrorOf(folder).find("/tls.crt: the certificate has expired at "), std::string::npos);
  authority.Issue(folder, {.begins_in_s = 1000});
  EXPECT_NE(ErrorOf(folder).find("/tls.crt: the certificate is not valid before "),
            std::string::npos);
  authority.Issue(folder, {});
  const std::string key = *ReadFile(folder + "/tls.key");
  authority.Issue(folder, {});
  Write(folder + "/tls.key", key);
  EXPECT_EQ(ErrorOf(folder), folder + "/tls.key: is not the key of " + folder + "/tls.crt");
  Write(folder + "/tls.key", "nothing");
  EXPECT_NE(ErrorOf(folder).find("/tls.key: contains no private key in PEM"), std::string::npos);
  Write(folder + "/tls.crt", key);
  EXPECT_NE(ErrorOf(folder).find("/tls.crt: contains no certificate in PEM"), std::string::npos);
}

TEST(Certificates, TakeFilesOnceTheyHaveSettled) {
  const Authority authority;
  const std::string folder = TestFolder("reload");
  const std::string first = authority.Issue(folder, {});
  auto opened = Certificates::Open(folder, Needs::kIdentity, /*ask_clients=*/true, Now());
  ASSERT_TRUE(opened.ok()) << opened.status();
  Certificates& certificates = **opened;
  const Context before = certificates.ServerContext();
  const std::string path = certificates.identity_path();
  const auto identity = ReadFile(path);
  ASSERT_TRUE(identity.ok());
  const std::string second = authority.Issue(folder, {});
  certificates.Look(Now());
  EXPECT_EQ(certificates.files()->serial, first) << "it may still be written";
  certificates.Look(Now());
  EXPECT_EQ(certificates.files()->serial, second);
  EXPECT_NE(certificates.ServerContext(), before);
  EXPECT_EQ(certificates.identity_path(), path);
  EXPECT_NE(*ReadFile(path), *identity);
  EXPECT_EQ(certificates.counts().reloaded, 1U);
}

TEST(Certificates, KeepTheOldOnesWhereTheNewCannotBeUsed) {
  const Authority authority;
  const std::string folder = TestFolder("kept");
  const std::string first = authority.Issue(folder, {});
  auto opened = Certificates::Open(folder, Needs::kIdentity, false, Now());
  ASSERT_TRUE(opened.ok()) << opened.status();
  Certificates& certificates = **opened;
  const auto identity = ReadFile(certificates.identity_path());
  authority.Issue(folder, {.ends_in_s = -1});
  for (int i = 0; i < 4; ++i) certificates.Look(Now());
  EXPECT_EQ(certificates.files()->serial, first);
  EXPECT_EQ(*ReadFile(certificates.identity_path()), *identity);
  EXPECT_EQ(certificates.counts().failed, 1U) << "once, however often it is looked at";
  const std::string third = authority.Issue(folder, {});
  for (int i = 0; i < 2; ++i) certificates.Look(Now());
  EXPECT_EQ(certificates.files()->serial, third);
}

TEST(ClusterToken, TakesAnyOfItsLinesAndFollowsTheFile) {
  const std::string path = TestFolder("token") + "/token";
  Write(path, "0123456789abcdef\nfedcba9876543210\n");
  auto token = ClusterToken::Open(path);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ((*token)->Own(), "0123456789abcdef");
  EXPECT_TRUE((*token)->Accepts("fedcba9876543210"));
  for (const char* wrong : {"", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF"}) {
    EXPECT_FALSE((*token)->Accepts(wrong)) << wrong;
  }
  Write(path, "short");
  (*token)->Look();
  EXPECT_EQ((*token)->Own(), "0123456789abcdef") << "a bad file is not taken";
  Write(path, "another-secret-of-20");
  (*token)->Look();
  EXPECT_EQ((*token)->Own(), "another-secret-of-20");
  EXPECT_FALSE((*token)->Accepts("0123456789abcdef"));
}

TEST(ClusterToken, AnErrorNamesTheFile) {
  const std::string path = TestFolder("tokens") + "/token";
  EXPECT_EQ(ClusterToken::Open(path).status().message(), path + ": cannot be read");
  Write(path, "\n \n");
  EXPECT_EQ(ClusterToken::Open(path).status().message(), path + ": contains no token");
  Write(path, "two words of a token");
  EXPECT_EQ(ClusterToken::Open(path).status().message(),
            path + ": a token is one word of printable ASCII characters");
  Write(path, "short");
  EXPECT_EQ(ClusterToken::Open(path).status().message(),
            path + ": a token of 5 characters can be guessed; use at least 16");
}

TEST(OpenSecurity, NamesFlagAndFile) {
  const std::string folder = TestFolder("none");
  EXPECT_EQ(OpenSecurity({.tls_dir = folder}, Needs::kIdentity).status().message(),
            "--tls-dir: " + folder + "/ca.crt: cannot be read");
  EXPECT_EQ(OpenSecurity({.mtls = "all"}, Needs::kIdentity).status().message(),
            "--mtls: needs the certificates of --tls-dir");
}

}  // namespace
}  // namespace skein::services::tls
