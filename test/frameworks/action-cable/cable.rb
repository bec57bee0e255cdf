# What the server and the process that broadcasts have in common: config/cable.yml and config/database.yml, in Ruby.

require "logger"
require "action_cable"
require "active_record"

ActiveRecord::Base.establish_connection(adapter: "postgresql", database: ENV.fetch("PGDATABASE"), pool: 10)

ActionCable.server.config.tap do |config|
  config.cable = { "adapter" => "postgresql" }
  config.connection_class = -> { ActionCable::Connection::Base }
  config.disable_request_forgery_protection = true
  config.logger = Logger.new($stderr, level: Logger::ERROR)
end
