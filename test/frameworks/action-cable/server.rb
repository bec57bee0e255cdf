# The server: Action Cable under Puma, with the adapter that listens to PostgreSQL.

require_relative "cable"
require "puma"
require "puma/server"

# Each socket that subscribes gets what is broadcast to `orders`.
class OrdersChannel < ActionCable::Channel::Base
  def subscribed
    stream_from "orders"
  end
end

server = Puma::Server.new(ActionCable.server)
server.add_tcp_listener("127.0.0.1", 0)
server.run
$stdout.puts server.connected_ports.first
$stdout.flush
sleep
