# A worker image. Mount or copy your handler and name it:
#   docker run -e BUTLER_REDIS_URL=… -e BUTLER_MYSQL_URL=… -v ./handler.js:/app/handler.js session-butler
ARG NODE_IMAGE=node:22-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY tsconfig.json ./
COPY src src
RUN npm run build && npm prune --omit=dev

FROM ${NODE_IMAGE}
ENV NODE_ENV=production
WORKDIR /opt/butler
COPY --from=build /build/package.json ./
COPY --from=build /build/node_modules node_modules
COPY --from=build /build/dist dist
COPY migrations migrations
# In the root folder, so that a handler anywhere can `import 'session-butler'`.
RUN mkdir -p /node_modules /app && ln -s /opt/butler /node_modules/session-butler
WORKDIR /app
USER 1000:1000
# Exec form: node itself is process 1 and hears SIGTERM, on which a worker drains. Give it time: the drain grace is
# 25 s by default, so stop with `docker stop -t 30` (Kubernetes: terminationGracePeriodSeconds 30).
ENTRYPOINT ["node", "/opt/butler/dist/cli/main.js"]
CMD ["work", "/app/handler.js"]
