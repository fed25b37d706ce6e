// ServerTest: a server with a few pages, for tests of how it answers.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "services/http/admin.h"
#include "services/http/responder.h"
#include "services/http/routes.h"
#include "services/http/server.h"

namespace skein::services::http::testing {

constexpr auto kLong = std::chrono::seconds(30);

// The value of `gone`; waits for it.
inline Gone Why(std::promise<Gone>* gone) {
  auto future = gone->get_future();
  EXPECT_EQ(future.wait_for(kLong), std::future_status::ready);
  return future.get();
}

// A server with an echo page, probes, and /hold, whose responders the test answers itself.
class ServerTest : public ::testing::Test {
 protected:
  void StartServer(ServerOptions options = {}) {
    routes_.Add("POST", "/echo", [](Request request, std::shared_ptr<Responder> responder) {
      Response response;
      response.body = request.body;
      responder->Send(std::move(response));
    });
    routes_.Add("GET", "/hold", [this](Request, std::shared_ptr<Responder> responder) {
      held_.set_value(std::move(responder));
    });
    routes_.Add("GET", "/forget", [](Request, std::shared_ptr<Responder>) {});
    AddAdminPages({.service = "test",
                   .version = "1.2.3",
                   .ready = [] { return absl::UnavailableError("no model"); },
                   .metrics = [] { return std::string("x 1\n"); }},
                  &routes_);
    auto server = Server::Start(options, [this](Request request, auto responder) {
      routes_.Serve(std::move(request), std::move(responder));
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  // The responder of the current /hold request.
  std::shared_ptr<Responder> Held() {
    auto future = held_.get_future();
    EXPECT_EQ(future.wait_for(kLong), std::future_status::ready);
    return future.get();
  }
  uint16_t port() { return server_->port(); }

  Routes routes_;
  std::promise<std::shared_ptr<Responder>> held_;
  std::unique_ptr<Server> server_;  // last: its threads use the above
};

}  // namespace skein::services::http::testing
