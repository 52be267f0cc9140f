#include "raw_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <cerrno>
#include <cstring>

#include <glog/logging.h>

namespace capstan {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Reads until the other side closes; false after 10 s.
bool ReadUntilClosed(int fd) {
  const timeval limit{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char bytes[4096];
  for (;;) {
    const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n == 0) return true;
    if (n < 0) return errno == ECONNRESET;
  }
}

}  // namespace

RawPeer::RawPeer(const std::string& endpoint)
    : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
  CHECK_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
}

RawPeer::~RawPeer() {
  const int none = 0;
  zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof none);
  zmq_close(socket_);
  zmq_ctx_term(context_);
}

void RawPeer::Send(const std::vector<std::string>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const int flags = i + 1 < parts.size() ? ZMQ_SNDMORE : 0;
    CHECK_EQ(zmq_send(socket_, parts[i].data(), parts[i].size(), flags), static_cast<int>(parts[i].size()));
  }
}

void RawPeer::SendUnfinished(const std::string& part) {
  CHECK_EQ(zmq_send(socket_, part.data(), part.size(), ZMQ_SNDMORE), static_cast<int>(part.size()));
}

bool WriteGarbageUntilClosed(int port, const std::string& bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  CHECK_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  // The other side may close before all is written.
  const ssize_t written = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const bool closed = written < 0 || ReadUntilClosed(fd);
  close(fd);
  return closed;
}

void LeaveStaleIpcFile(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  CHECK_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  CHECK_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(fd);
}

ForeignServer::ForeignServer(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = Loopback(port);
  CHECK_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  CHECK_EQ(listen(fd_, 8), 0);
}

ForeignServer::~ForeignServer() { close(fd_); }

void ForeignServer::AnswerOnce(const std::string& bytes) {
  const int client = accept(fd_, nullptr, nullptr);
  CHECK_GE(client, 0);
  CHECK_EQ(send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  CHECK(ReadUntilClosed(client));
  close(client);
}

}  // namespace capstan
