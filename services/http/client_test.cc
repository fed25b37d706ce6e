// The client against the server of this folder.
#include "services/http/client.h"

#include <memory>
#include <mutex>

#include "gtest/gtest.h"
#include "services/http/server.h"
#include "services/http/testing/raw_server.h"

namespace skein::services::http {
namespace {

using std::chrono::milliseconds;

TEST(Client, AsksAndReadsTheWholeAnswer) {
  Routes routes;
  std::mutex mu;
  std::shared_ptr<Responder> held;  // guarded by mu: the server's thread writes it
  routes.Add("POST", "/big", [](const Request& request, std::shared_ptr<Responder> responder) {
    Response response{.status = 202, .body = std::string(1 << 20, 'x')};
    response.headers.push_back({"X-Seen", std::string(request.Get("X-Mine")) + request.query});
    responder->Send(std::move(response));
  });
  routes.Add("GET", "/never", [&](const Request&, std::shared_ptr<Responder> responder) {
    const std::lock_guard lock(mu);
    held = std::move(responder);
  });
  auto server = Server::Start({}, [&routes](Request request, std::shared_ptr<Responder> responder) {
    routes.Serve(std::move(request), std::move(responder));
  });
  ASSERT_TRUE(server.ok());
  const Address address{"127.0.0.1", (*server)->port()};
  const auto big = Ask(address, {"POST", "/big?q=1", {{"X-Mine", "m"}}}, milliseconds(20'000));
  ASSERT_TRUE(big.ok()) << big.status();
  EXPECT_EQ(big->status, 202);
  EXPECT_EQ(big->body.size(), size_t{1} << 20);
  EXPECT_EQ(FindHeader(big->headers, "x-seen"), "mq=1");
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(Ask(address, {"GET", "/never", {}}, milliseconds(50)).status()));
  {
    const std::lock_guard lock(mu);
    held.reset();
  }
  (*server)->Stop(milliseconds(0));
  const absl::Status refused = Ask(address, {}, milliseconds(20'000)).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_NE(refused.message().find("127.0.0.1:"), absl::string_view::npos);
}

TEST(Client, DoesNotWaitForAServerThatKeepsTheConnection) {
  for (const char* bytes :
       {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}) {
    const testing::RawServer server(bytes);
    const auto answer = Ask({"127.0.0.1", server.port()}, {}, milliseconds(20'000));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->body, "abc");
  }
}

TEST(Client, AnAnswerThatIsNotHttpIsNamed) {
  const testing::RawServer server("SSH-2.0\r\n");
  const absl::Status refused = Ask({"127.0.0.1", server.port()}, {}, milliseconds(20'000)).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_NE(refused.message().find(": the answer is not HTTP"), absl::string_view::npos) << refused;
}

TEST(Client, AddressesAreHostAndPort) {
  EXPECT_EQ(ParseAddress("h.example:80")->host, "h.example");
  EXPECT_EQ(ParseAddress("[::1]:8080")->host, "::1");
  EXPECT_EQ(ParseAddress("[::1]:8080")->port, 8080);
  for (const char* bad : {"", "h", "h:", ":1", "h:0", "h:65536", "h:1x", "::1:80"}) {
    EXPECT_EQ(ParseAddress(bad).status().message(), "'" + std::string(bad) + "' is not HOST:PORT");
  }
}

}  // namespace
}  // namespace skein::services::http
