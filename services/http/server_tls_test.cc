// The HTTP server and client in TLS, and attacks on the port.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "services/http/client.h"
#include "services/http/responder.h"
#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/tls/security.h"
#include "services/tls/testing/authority.h"

namespace skein::services::http {
namespace {

using tls::testing::Authority;
using tls::testing::RoleName;
using tls::testing::TestFolder;

constexpr std::chrono::seconds kTimeout{20};

class TlsServer : public ::testing::Test {
 protected:
  static tls::Security Of(const Authority& authority, const std::string& name,
                          const std::string& in_certificate) {
    const std::string folder = TestFolder(name);
    if (in_certificate.empty()) {
      authority.Publish(folder);
    } else {
      authority.Issue(folder, {.names = {in_certificate}});
    }
    tls::Security security;
    security.certificates =
        *tls::Certificates::Open(folder, tls::Needs::kAuthority, true, std::time(nullptr));
    return security;
  }

  void Serve(const tls::Security& security, bool need_certificate = false) {
    ServerOptions options;
    options.certificates = security.certificates;
    options.need_certificate = need_certificate;
    options.plan_body = [this](const Request& head) -> BodyPlan {
      if (head.path == "/upload") ++uploads_;
      return {.bytes_max = 100};
    };
    server_ = *Server::Start(options, [](Request request, std::shared_ptr<Responder> responder) {
      Response response;
      response.body = request.path;
      if (request.path == "/large") response.body = std::string(3 << 20, 'x');
      if (request.path == "/who") {
        response.body = request.certified ? tls::NamesOf(*request.certified) : "nobody";
      }
      responder->Send(std::move(response));
    });
  }

  absl::StatusOr<Response> Get(const std::string& target, const tls::Security& security) {
    return Ask({"127.0.0.1", server_->port()}, {.target = target}, kTimeout, security);
  }

  const Authority authority_, other_authority_;
  const tls::Security router_ = Of(authority_, "router", RoleName("router"));
  const tls::Security visitor_ = Of(authority_, "visitor", "");
  std::atomic<int> uploads_{0};  // whose bodies would have been taken
  std::unique_ptr<Server> server_;
};

TEST_F(TlsServer, AnswersInTlsAndKnowsWhoAsks) {
  Serve(router_);
  const auto answer = Get("/who", visitor_);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "nobody");
  EXPECT_EQ(Get("/who", Of(authority_, "operator", RoleName("operator")))->body, "operator");
  EXPECT_EQ(Get("/large", visitor_)->body.size(), size_t{3} << 20);
}

TEST_F(TlsServer, TellsAClientWithoutTls) {
  Serve(router_);
  const Response answer = testing::Fetch(server_->port(), "GET", "/");
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("This port speaks TLS"), std::string::npos) << answer.body;
  EXPECT_TRUE(Get("/", visitor_).ok()) << "others are served";
}

TEST_F(TlsServer, ClosesOnWhatIsNeitherTlsNorHttp) {
  Serve(router_);
  testing::RawClient client(server_->port());
  ASSERT_TRUE(client.Send("\x01\x02\x03 nothing that anyone speaks"));
  client.ReadAll();
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(Get("/", visitor_).ok());
}

TEST_F(TlsServer, RefusesCertificatesOfOthers) {
  Serve(router_);
  // It trusts this server, but its own certificate is another authority's.
  const std::string folder = TestFolder("stranger");
  other_authority_.Issue(folder, {.names = {RoleName("operator")}});
  authority_.Publish(folder);
  tls::Security stranger;
  stranger.certificates =
      *tls::Certificates::Open(folder, tls::Needs::kIdentity, false, std::time(nullptr));
  EXPECT_FALSE(Get("/who", stranger).ok());
  Serve(Of(other_authority_, "impostor", RoleName("router")));
  const auto refused = Get("/who", visitor_);
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
}

TEST_F(TlsServer, IsNotTakenForAnotherHost) {
  Serve(Of(authority_, "elsewhere", "DNS:router.example.org"));
  const auto refused = Get("/", visitor_);
  EXPECT_TRUE(absl::IsUnavailable(refused.status()));
  EXPECT_NE(refused.status().message().find("nor is it for the host '127.0.0.1'"),
            std::string::npos)
      << refused.status();
}

TEST_F(TlsServer, MayWantACertificateForAllButProbes) {
  Serve(router_, /*need_certificate=*/true);
  EXPECT_EQ(Get("/v1/models", visitor_)->status, 403);
  EXPECT_EQ(Get("/upload", visitor_)->status, 403);
  EXPECT_EQ(uploads_.load(), 0);
  EXPECT_EQ(Get("/readyz", visitor_)->status, 200);
  EXPECT_EQ(Get("/v1/models", Of(authority_, "client", RoleName("operator")))->status, 200);
  EXPECT_EQ(Get("/v1/models", Of(authority_, "user", "DNS:user.example.org"))->status, 200)
      << "any certificate of the authority will do";
}

TEST_F(TlsServer, UsesARenewedCertificateForNewConnections) {
  const tls::Security renewed = Of(authority_, "renewed", RoleName("router"));
  Serve(renewed);
  EXPECT_TRUE(Get("/", visitor_).ok());
  // Of another authority, so that a client can tell them apart.
  other_authority_.Issue(TestFolder("renewed"), {.names = {RoleName("router")}});
  for (int i = 0; i < 2; ++i) renewed.certificates->Look(std::time(nullptr));
  EXPECT_FALSE(Get("/", visitor_).ok());
  EXPECT_TRUE(Get("/", Of(other_authority_, "later", "")).ok());
}

TEST_F(TlsServer, StopsWhileAHandshakeHangs) {
  Serve(router_);
  testing::RawClient client(server_->port());
  ASSERT_TRUE(client.Send("\x16\x03\x01"));
  ASSERT_TRUE(Get("/", visitor_).ok());
  server_->Stop(std::chrono::milliseconds(50));
  EXPECT_TRUE(client.AtEnd());
}

}  // namespace
}  // namespace skein::services::http
