#include "services/console/console_access.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

http::Request RequestOf(std::vector<http::Header> headers, const std::string& method = "GET") {
  http::Request request;
  request.method = method;
  request.path = "/console/";
  request.remote = "127.0.0.1";
  request.headers = std::move(headers);
  return request;
}

TEST(ConsoleAccess, AddressesAndOwnNamesAreOwnHosts) {
  const std::vector<std::string> names = {"router-0", "", "Console.Example.com"};
  for (const char* host : {"127.0.0.1:8001", "10.1.2.3", "[::1]:8001", "[fe80::1]", "localhost",
                           "LOCALHOST:8001", "router-0:8001", "console.example.com"}) {
    EXPECT_TRUE(IsOwnHost(host, names)) << host;
  }
  for (const char* host :
       {"", ":8001", "attacker.example", "127.0.0.1.attacker.example", "localhost.attacker.example",
        "[::1", "router-0.attacker.example", "1.2.3", "0x7f.1"}) {
    EXPECT_FALSE(IsOwnHost(host, names)) << host;
  }
}

// A page whose name leads here: its browser takes it for the page's own server.
TEST(ConsoleAccess, ARebindingPageIsRefused) {
  const auto refusal = RefuseConsole(RequestOf({{"Host", "attacker.example:8001"},
                                                {"Origin", "http://attacker.example:8001"},
                                                {"Sec-Fetch-Site", "same-origin"}}),
                                     {});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->status, 403);
  EXPECT_EQ(refusal->error_code, "unknown_host");
}

TEST(ConsoleAccess, OtherPagesAreRefused) {
  const auto code = [](std::vector<http::Header> headers, const std::string& method = "GET") {
    headers.push_back({"Host", "127.0.0.1:8001"});
    const auto refusal = RefuseConsole(RequestOf(std::move(headers), method), {});
    return refusal.has_value() ? refusal->error_code : "";
  };
  EXPECT_EQ(code({}), "");
  EXPECT_EQ(code({{"Origin", "http://127.0.0.1:8001"}}, "POST"), "");
  EXPECT_EQ(code({{"Sec-Fetch-Site", "same-origin"}}), "");
  EXPECT_EQ(code({{"Sec-Fetch-Site", "none"}}), "");
  EXPECT_EQ(code({{"Origin", "http://attacker.example"}}, "POST"), "other_origin");
  EXPECT_EQ(code({{"Origin", "http://127.0.0.1:3000"}}, "POST"), "other_origin");
  EXPECT_EQ(code({{"Origin", "null"}}, "POST"), "other_origin");
  EXPECT_EQ(code({{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "no-cors"}}),
            "other_origin");
  // A link on another page may be followed, but not in a frame.
  EXPECT_EQ(code({{"Sec-Fetch-Site", "cross-site"},
                  {"Sec-Fetch-Mode", "navigate"},
                  {"Sec-Fetch-Dest", "document"}}),
            "");
  EXPECT_EQ(code({{"Sec-Fetch-Site", "cross-site"},
                  {"Sec-Fetch-Mode", "navigate"},
                  {"Sec-Fetch-Dest", "iframe"}}),
            "other_origin");
}

TEST(ConsoleAccess, AnOrderNeedsTheToken) {
  const auto code = [](std::vector<http::Header> headers, const std::string& file) {
    const auto refusal = RefuseOrder(RequestOf(std::move(headers), "POST"), file);
    return refusal.has_value() ? refusal->status : 200;
  };
  const std::string file = ::testing::TempDir() + "/token";
  std::ofstream(file) << "secret\n";
  EXPECT_EQ(code({{"Authorization", "Bearer secret"}}, ""), 403);
  EXPECT_EQ(code({}, file), 401);
  EXPECT_EQ(code({{"Authorization", "Bearer other"}}, file), 401);
  EXPECT_EQ(code({{"Authorization", "Bearer secret"}}, file), 200);
  EXPECT_EQ(code({{"Authorization", "Bearer secret"}, {"Origin", "http://127.0.0.1"}}, file), 200);
}

}  // namespace
}  // namespace skein::services
