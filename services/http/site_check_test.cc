#include "services/http/site_check.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace skein::services::http {
namespace {

Request Of(const std::string& method, std::vector<Header> headers) {
  Request request;
  request.method = method;
  request.path = "/v1/files";
  request.headers = std::move(headers);
  return request;
}

class SiteCheckTest : public ::testing::Test {
 protected:
  std::string CodeOf(const Request& request) const {
    const auto refused = check_.Refuse(request, cors_);
    return refused.has_value() ? refused->error_code : "";
  }
  const Cors cors_ = *Cors::Create({"https://chat.example"}, "");
  const SiteCheck check_{{"Proxy.example"}};
};

TEST_F(SiteCheckTest, NamesOfOtherSitesAreRefused) {
  for (const char* host : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example",
                           "localhost.evil.example:80", "localhost."}) {
    EXPECT_EQ(CodeOf(Of("GET", {{"Host", host}})), "host_not_allowed") << host;
  }
}

TEST_F(SiteCheckTest, AddressesLocalhostAndGivenNamesAreTaken) {
  for (const char* host : {"127.0.0.1:8000", "10.1.2.3", "[::1]:8000", "[fd00::1]", "localhost:80",
                           "x.localhost", "router", "proxy.example", "PROXY.EXAMPLE:443", ""}) {
    EXPECT_EQ(CodeOf(Of("GET", {{"Host", host}})), "") << host;
  }
}

TEST_F(SiteCheckTest, ForeignPagesChangeNothing) {
  for (const char* method : {"POST", "PUT", "PATCH", "DELETE"}) {
    EXPECT_EQ(CodeOf(Of(method, {{"Origin", "https://evil.example"}})), "origin_not_allowed");
    EXPECT_EQ(CodeOf(Of(method, {{"Origin", "null"}})), "origin_not_allowed");
    EXPECT_EQ(CodeOf(Of(method, {{"Sec-Fetch-Site", "cross-site"}})), "origin_not_allowed");
    EXPECT_EQ(
        CodeOf(Of(method, {{"Origin", "https://chat.example"}, {"Sec-Fetch-Site", "cross-site"}})),
        "");
    EXPECT_EQ(CodeOf(Of(method, {{"Sec-Fetch-Site", "same-origin"}})), "");
    EXPECT_EQ(CodeOf(Of(method, {})), "") << "a program";
  }
  EXPECT_EQ(CodeOf(Of("GET", {{"Origin", "https://evil.example"}})), "")
      << "the browser keeps the answer from the page";
}

TEST_F(SiteCheckTest, ItsOwnPagesMayPost) {
  EXPECT_EQ(CodeOf(Of("POST", {{"Host", "10.1.2.3:8000"}, {"Origin", "http://10.1.2.3:8000"}})),
            "");
  EXPECT_EQ(CodeOf(Of("POST", {{"Host", "10.1.2.3:8000"}, {"Origin", "http://10.1.2.3:9000"}})),
            "origin_not_allowed");
}

TEST_F(SiteCheckTest, WhereAnyNameIsTakenTheOriginStillCounts) {
  const SiteCheck any;
  EXPECT_FALSE(any.Refuse(Of("GET", {{"Host", "api.example"}}), cors_).has_value());
  EXPECT_TRUE(
      any.Refuse(Of("POST", {{"Host", "api.example"}, {"Origin", "https://evil.example"}}), cors_)
          .has_value());
  const Cors all = *Cors::Create({"*"}, "");
  EXPECT_FALSE(any.Refuse(Of("POST", {{"Origin", "https://a.example"}}), all).has_value());
  EXPECT_FALSE(any.Refuse(Of("POST", {{"Sec-Fetch-Site", "cross-site"}}), all).has_value());
}

TEST(OriginOf, IsSchemeAndHostHeader) {
  EXPECT_TRUE(IsOriginOf("http://router:8000", "router:8000"));
  EXPECT_TRUE(IsOriginOf("https://ROUTER:8000", "Router:8000"));
  for (const char* origin :
       {"http://router", "http://router:8001", "ftp://router:8000", "router:8000", "null", ""}) {
    EXPECT_FALSE(IsOriginOf(origin, "router:8000")) << origin;
  }
  EXPECT_FALSE(IsOriginOf("http://", "")) << "a request without a Host header";
}

TEST(LoopbackHost, IsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "node-7", "127.example.org",
                           "127.0.0.1.example.org", "localhost.example.org", ""}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

}  // namespace
}  // namespace skein::services::http
